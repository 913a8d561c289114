"""The answer of a retune in a few lines, with its picture's caption and a table, for a README."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.report.figures.confirmed_figure import confirmed_series
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.compare.short_answer import apart
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.retune_cost import costs


def gpu_word(model: str | None) -> str:
    """A GPU model as one says it: H200."""
    return str(model).removeprefix("NVIDIA ").split()[0]


def short_answer(reports: Sequence[Report], link: str) -> list[str]:
    """What retuning gives of the first variant, and which one to take, in the words of every other answer; `link` leads to
    the whole.
    """
    gain = reports[0].answer[len(apart(reports[0].between))]
    found = [
        gain,
        *(f"{each}." for each in apart([one for each in reports for one in each.between])),
    ]
    return [*(f"- {each}" for each in found), "", f"[All figures]({link})."]


def caption(studies: Sequence[StudySnapshot], picture: str, link: str) -> list[str]:
    """The picture and what it shows."""
    models = " and ".join(sorted({str(each.device_model) for each in studies}))
    searches = " or ".join(sorted({str(len(each)) for each in groups_of(studies).values()}))
    said = f"*[{searches} searches]({link}) of each on {models}. Colours: fresh seeds. Arrows: from what a search saw.*"
    return [
        f"![Time to convergence against test MQL, as confirmed]({picture})",
        "",
        said,
    ]


def variants_lines(reports: Sequence[Report]) -> list[str]:
    """A row of each variant on each GPU model: its default, and the middle one of what is confirmed,
    by medians over fresh seeds.
    """
    lines = [
        "| variant | GPU | default: s | MQL | retuned: s | MQL | confirmed |",
        "|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        lines += _rows(report.studies)
    return lines


def _rows(studies: Sequence[StudySnapshot]) -> list[str]:
    names = names_of_groups(studies)
    counts = {names[each.group]: each for each in costs(groups_of(studies))}
    lines = []
    for each in confirmed_series(studies):
        retuned = None if each.answer is None else each.found[each.answer].at
        cells = [
            "- | -" if at is None else f"{at.time.estimate:.3f} | {at.mql.estimate:.4f}"
            for at in (each.default, retuned)
        ]
        of, gpu = counts[each.name], gpu_word(studies[0].device_model)
        lines.append(
            f"| {each.name} | {gpu} | {' | '.join(cells)} | {of.confirmed} of {of.searches} searches |"
        )
    return lines
