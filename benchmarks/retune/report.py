r"""What a retune came to, from its exported studies: its sentences, and a table of its searches.

    python benchmarks/retune/report.py --device "2 x NVIDIA H100" benchmarks/retune/h100 --output OUT/h100 --picture docs/front.png \
        --beside benchmarks/retune/campaign --readme README.md

The folder holds the studies, as `tuner study export` writes them; where it holds none, they are those of the table of recorded
runs (benchmarks/runs) that lay there. Searches of the reference that have not changed since may lie in another folder,
`--reference`. Writes OUTPUT.md and OUTPUT.json;
with `--readme` the short answer, the picture's caption and a table between their markers there,
those of other GPU models' folders `--beside` it; and with `--picture` the picture itself, which needs a Chromium.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from PIL import Image

from benchmarks.campaign.plan import FULL
from benchmarks.retune.short_answer import caption, short_answer, variants_lines
from benchmarks.runs.table import snapshots
from benchmarks.shared.circumstances import circumstances, heading, write
from benchmarks.shared.marked_sections import replaced
from tuner.report.figures.draw import draw
from tuner.report.figures.save import save
from tuner.report.terminal.retuning import COST, verdict_sections
from tuner.storage.records import device_seconds
from tuner.study.archive import read_archive
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.compare.findings import Report, compare
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.confirmation import Confirmation, Test, confirmation_of
from tuner.verdict.retune_cost import cost_sentence, costs

BENCHMARKS = Path(__file__).resolve().parents[1]
LINK = "benchmarks/retune/README.md"
PICTURE = "docs/front.png"
ANSWER, FRONT, VARIANTS = "answer", "front", "variants"
HEADER = (
    "| search | trials, configurations | device s | waiting for suggestions | tested | MQL over the "
    "default's, below (96 %) | time over the default's |"
)


def read(folder: Path, names: str = "*") -> list[StudySnapshot]:
    """Studies of a folder, by a pattern of their names, in the campaign's order: those of the reference first, and those of
    one variant by their numbers.
    """
    order = FULL.variants

    def place(study: StudySnapshot) -> tuple[int, str, int]:
        known = order.index(study.variant) if study.variant in order else len(order)
        return known, study.membership.group, study.membership.search

    paths = sorted(folder.glob(f"{names}.json.gz"))
    found = [snapshot(read_archive(path)) for path in paths] or recorded(folder, names)
    return sorted(found, key=place)


def recorded(folder: Path, names: str) -> list[StudySnapshot]:
    """Of a retune whose exports are no longer here: its studies in the table of recorded runs."""
    whole = folder.resolve()
    known = whole.relative_to(BENCHMARKS) if whole.is_relative_to(BENCHMARKS) else folder
    return snapshots(f"{known}/{names}")


def with_reference(studies: Sequence[StudySnapshot], folder: Path) -> list[StudySnapshot]:
    """The same, after those of the first one's group that only the other folder has.

    Raises:
        SystemExit: it has none.
    """
    group, known = studies[0].membership.group, {each.name for each in studies}
    more = [each for each in read(folder, f"{group}*") if each.name not in known]
    if not more:
        raise SystemExit(f"--reference: no other search of {group} is in {folder}")
    found = [each for each in (*studies, *more) if each.membership.group == group]
    found.sort(key=lambda each: each.membership.search)
    return [*found, *(each for each in studies if each.membership.group != group)]


def figures(study: StudySnapshot) -> dict[str, Any]:
    """Of one search."""
    recorded = [each.recorded for each in study.results.records if each.state.is_finished()]
    spent = sum(map(device_seconds, recorded))
    there = confirmation_of(study)
    return {
        "study": study.name,
        "trials": len(recorded),
        "configurations": len(study.results.configurations),
        "device_s": spent,
        "suggest_wait_share": sum(each.suggest_wait_s or 0.0 for each in recorded) / spent,
        "confirmation": there and there.as_dict(),
    }


def line(study: StudySnapshot) -> str:
    """The same as a row of the table."""
    there = ended(study)
    cells = (*searched_cells(study), *tested_cells(there.trial, there.test))
    return f"| {' | '.join(cells)} |"


def ended(study: StudySnapshot) -> Confirmation:
    """A search's confirmation.

    Raises:
        SystemExit: it has not ended.
    """
    there = confirmation_of(study)
    if there is None or not there.complete:
        raise SystemExit(f"{study.name}: its confirmation has not ended")
    return there


def searched_cells(study: StudySnapshot) -> tuple[str, str, str, str]:
    """The study, its trials and configurations, device seconds, and what suggestions took of it."""
    f = figures(study)
    trials = f"{f['trials']}, {f['configurations']}"
    return f["study"], trials, f"{f['device_s']:.0f}", f"{f['suggest_wait_share']:.1%}"


def tested_cells(trial: int | None, test: Test | None) -> tuple[str, str, str]:
    """What was tested of a search, its MQL and its time over the default's."""
    if trial is None:
        return "the default stands", "-", "-"
    if test is None or test.no_worse is None or test.ratio is None:
        return f"trial {trial}, too few runs", "-", "-"
    said = "confirmed" if test.claimed else "not shown"
    mql = f"{test.no_worse.ratio:.4f}, {test.no_worse.bound:.4f}"
    return f"trial {trial}, {said}", mql, f"{test.ratio:.2f}"


def sentences(report: Report) -> list[str]:
    """What the retune ended with."""
    groups, names = groups_of(report.studies), names_of_groups(report.studies)
    lines = [cost_sentence(each, names[each.group]) for each in costs(groups)]
    told = []
    for title, said in verdict_sections(report, lines):
        if title != COST:
            told += ["", f"**{title}**", "", *(f"- {each}" for each in said)]
    return [*told, "", f"**{COST}**", "", *(f"- {each}." for each in lines)]


def with_answer(text: str, reports: Sequence[Report]) -> str:
    """A document with the short answer, of two variants or more on each GPU model, the picture of
    the first and a table between their markers.
    """
    if any(len(groups_of(each.studies)) == 1 for each in reports):
        raise SystemExit(
            "--readme: the short answer is of two variants or more; see two_models.py for one"
        )
    text = replaced(text, ANSWER, short_answer(reports, LINK))
    text = replaced(text, FRONT, caption(reports[0].studies, PICTURE, LINK))
    return replaced(text, VARIANTS, variants_lines(reports))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", required=True, help="what it ran on")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--readme", type=Path, help="a document with the short answer")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="other GPU models'")
    parser.add_argument("--reference", type=Path, help="where other searches of it lie")
    parser.add_argument("--picture", type=Path, help="where to draw what is confirmed")
    options = parser.parse_args()
    studies = read(options.folder)
    if options.reference is not None:
        studies = with_reference(studies, options.reference)
    found = compare(studies)
    if options.readme is not None:
        before = options.readme.read_text(encoding="utf-8")
        reports = [found, *(compare(read(each)) for each in options.beside)]
        options.readme.write_text(with_answer(before, reports), encoding="utf-8")
    if options.picture is not None:
        save(draw("confirmed", studies), options.picture)
        with Image.open(options.picture) as drawn:  # a third of the bytes, and looks the same
            drawn.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(options.picture)
    where = circumstances(options.device)
    text = [HEADER, "|---|---|---|---|---|---|---|", *(line(each) for each in studies)]
    text += sentences(found)
    document = where | {"searches": [figures(each) for each in studies]}
    write(options.output, document, [*heading(where), *text])
    print("\n".join(text))


if __name__ == "__main__":
    main()
