"""The tables of the campaign's report: what each variant needs, and what retuning found."""

from __future__ import annotations

from collections.abc import Sequence

from answer import prose

from tuner.report.comparison_files import HEADINGS, cell
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.rows import Row

PARAMETERS = {
    "learning_rate": ("learning rate", ".2e"),
    "weight_decay": ("weight decay", ".1e"),
    "dropout": ("dropout", ".3f"),
    "hidden_size": ("hidden size", "d"),
    "batch_size": ("batch size", "d"),
}


def table(report: Report) -> list[str]:
    rows = [
        f"| {row.variant} | {row.hyperparameters} | {_runs(row)} | {' | '.join(cell(row, name) for name in HEADINGS)} |"
        for row in report.rows
    ]
    return [
        f"| variant | hyperparameters | runs | {' | '.join(HEADINGS.values())} |",
        f"|{'---|' * (len(HEADINGS) + 3)}",
        *rows,
        "",
        *prose(
            f"The task is {report.task}, on {device(report.studies)}. Verified figures are medians over fresh seeds with 95 % "
            "intervals. The knee is the point of a search's front that gives most of both objectives."
        ),
    ]


def _runs(row: Row) -> str:
    """How many runs converged, of how many; that there were none."""
    missed = sum(row.misses.values())
    if not row.verified:
        return "not verified"
    return f"{row.runs - missed} of {row.runs}" if missed else str(row.runs)


def parameters(report: Report) -> list[str]:
    lines = [
        f"| retuned | {' | '.join(heading for heading, _ in PARAMETERS.values())} |",
        f"|{'---|' * (len(PARAMETERS) + 1)}",
    ]
    for row in (each for each in report.rows if each.hyperparameters.startswith("retuned")):
        cells = (_number(row.params[name], form) for name, (_, form) in PARAMETERS.items())
        lines.append(f"| {row.variant} | {' | '.join(cells)} |")
    return lines


def _number(value: float, form: str) -> str:
    return "0" if value == 0 else f"{value:{form}}"


def device(studies: Sequence[StudySnapshot]) -> str:
    return ", ".join(sorted({study.device_model or "no device" for study in studies}))
