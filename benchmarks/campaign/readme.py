"""The report of the campaign, made from the committed exports: no database, no GPU, under a minute.

    python benchmarks/campaign/readme.py

Writes the report in report.md between the markers `<!-- campaign -->` and `<!-- /campaign -->`. The campaign's
question is one pair, asked alone; the other variants are held against the reference in one comparison of all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2]))
from answer import conclusion, luck, prose, spread_of_a_seed
from plan import FULL
from report_tables import parameters, table
from state import CALLS

from benchmarks.shared.marked_sections import replaced
from tuner.study.archive import read_archive
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.findings import Report, compare
from tuner.verdict.compare.studies import read_studies

HERE = Path(__file__).resolve().parent
REPORT = HERE / "report.md"


def exports(folder: Path) -> list[Path]:
    """The campaign's exported studies in `folder` whose search has ended, the reference first."""
    wanted = {name: search.trials for search in FULL.searches for name in FULL.studies(search)}
    there = (
        (path, trials)
        for name, trials in wanted.items()
        if (path := folder / f"{name}.json.gz").exists()
    )
    return [path for path, trials in there if _finished(path) >= trials]


def _finished(path: Path) -> int:
    return sum(record.state.is_finished() for record in read_archive(path).records)


def campaign_lines(paths: Sequence[Path], calls: str) -> list[str]:
    """The report: the answer to the question, the table, what retuning found, the other pairs, how it was done.

    `calls` is the list of the calls of run.py, a line of JSON each; empty where it is not known.
    """
    studies = _studies(paths)
    whole, pair = compare(studies, pick="knee"), compare(studies[:2], pick="knee")
    reference, asked = studies[0].variant, studies[1].variant
    question = (
        f"The question was asked before any run: is {asked}, retuned, faster to converge than {reference}, retuned, at the same "
        "forecast quality?"
    )
    if any(row.verified for row in whole.rows):
        answer = [
            *prose(f"{question} {conclusion(pair.between)} What these searches say:"),
            "",
            *_sentences(pair),
            "",
            *prose(f"{spread_of_a_seed(studies)} {luck(studies)}".strip()),
        ]
    else:
        answer = prose(
            f"{question} **There is no answer yet**: the searches have ended, but nothing has run again on fresh seeds. What "
            "they found are figures of one seed each, and those of the knee are the lucky ones among many."
        )
    lines = [*answer, "", *table(whole), "", *parameters(whole)]
    return [*lines, *_others(studies, whole), "", *_how(studies, whole, calls)]


def _studies(paths: Sequence[Path]) -> list[StudySnapshot]:
    return read_studies([str(path) for path in paths], task=FULL.task, storage="sqlite:///none.db")


def _sentences(report: Report) -> list[str]:
    told = [f"- **{standing.sentence}.**" for standing in report.between]
    told += [f"- {each.sentence}." for each in report.confirmed]
    return [*told, *(f"- Missing: {what}." for what in report.missing)]


def _others(studies: Sequence[StudySnapshot], report: Report) -> list[str]:
    """All variants against the reference, where there are more than the two of the question."""
    if len(studies) <= 2 or not report.between:
        return []
    return [
        "",
        f"All {len(studies)} variants, each against {studies[0].variant}:",
        "",
        *(f"- {standing.sentence}." for standing in report.between),
    ]


def _how(studies: Sequence[StudySnapshot], report: Report, calls: str) -> list[str]:
    """Where the figures come from, and what is not equal."""
    held = ", ".join(f"{study.variant} {study.finished}" for study in studies)
    plans = [run.plan for study in studies for run in study.runs]
    told = [
        f"How it was done: {'first, ' if plans else ''}`tuner launch` ran the searches (trials: {held})."
    ]
    if plans:
        top, seeds = (max(plan[name] for plan in plans) for name in ("top", "seeds"))
        told.append(
            f"Then `tuner verify` ran the default configuration and up to {top} of each front again, on {seeds} seeds that no "
            "search had used, all variants interleaved."
        )
    if made := [json.loads(line) for line in calls.splitlines()]:
        days = " to ".join(dict.fromkeys((made[0]["date"][:10], made[-1]["date"][:10])))
        minutes = sum(call["took_s"] * call["workers"] for call in made) / 60
        told.append(
            f"That took {minutes:.0f} GPU minutes in {_calls(len(made))} of one command, {days}."
        )
    if plans:
        told.append(
            "No claim follows from points of a front; between variants a difference is claimed if an exact test over whole "
            "searches finds one ([read a verdict](../../docs/read-a-verdict.md))."
        )
    told.append(
        "[README.md](README.md) has the commands and the studies. "
        "`python benchmarks/campaign/readme.py` writes this section from them, without a GPU and in under a minute."
    )
    told += [
        f"Not equal: {what}" for what in report.fairness if not what.startswith("Search budgets")
    ]  # told above
    return prose(" ".join(told))


def _calls(number: int) -> str:
    return "one call" if number == 1 else f"{number} calls"


def written(text: str, folder: Path) -> str:
    """The text of report.md with the section that the exports in `folder` give.

    It stays as it is where there are none. Both studies of the question must be there: a campaign that is under way has
    no report yet.
    """
    if not _has_the_pair(paths := exports(folder)):
        return text
    calls = (folder / CALLS).read_text(encoding="utf-8") if (folder / CALLS).exists() else ""
    return replaced(text, "campaign", campaign_lines(paths, calls))


def _has_the_pair(paths: Sequence[Path]) -> bool:
    return [path.name for path in paths[:2]] == [f"{name}.json.gz" for name in FULL.studies()[:2]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--exports", type=Path, default=HERE, help="folder of the exported studies")
    parser.add_argument("--document", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    if not _has_the_pair(exports(options.exports)):
        pair = " and ".join(f"{name}.json.gz" for name in FULL.studies()[:2])
        raise SystemExit(
            f"{options.exports} does not hold {pair}; report.py writes them once both searches have begun"
        )
    before = options.document.read_text(encoding="utf-8")
    after = written(before, options.exports)
    options.document.write_text(after, encoding="utf-8")
    print(f"{options.document}: {'as it was' if after == before else 'written'}")


if __name__ == "__main__":
    main()
