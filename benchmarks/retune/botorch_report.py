"""What BoTorch's searches came to, beside our own on the same GPU model: every figure of each.

    python benchmarks/retune/botorch_report.py benchmarks/retune/botorch --beside benchmarks/retune/h100 --output OUT/botorch

The folder holds the studies, as `tuner study export` writes them, and `picks.json`, which botorch_live.py
wrote. Of the folder beside it the searches of the same variants are taken. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.retune.report import ended, figures, read, searched_cells, tested_cells
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.spec.margin import Question
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Test, tested
from tuner.verdict.verified import as_configurations

OURS, OUR_STEPS, ITS_MODEL = "tuner", "BoTorch, our steps", "BoTorch, its own model"
HEADER = (
    "| search | by | trials, configurations | device s | waiting for suggestions | what is recommended | seeds "
    "| MQL over the default's, below (96 %) | time over the default's |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One recommendation of one search, against the default."""

    study: StudySnapshot
    by: str
    trial: int | None
    """None where the default stands."""
    seeds: int
    run: int
    """Of these seeds, so many have run."""
    test: Test | None

    def as_dict(self) -> dict[str, Any]:
        of_search = {
            name: value for name, value in figures(self.study).items() if name != "confirmation"
        }
        test = self.test and self.test.as_dict()
        told = {"trial": self.trial, "seeds": self.seeds, "run": self.run, "test": test}
        return of_search | {"by": self.by} | told

    def line(self) -> str:
        study, *searched = searched_cells(self.study)
        what, *over_default = tested_cells(self.trial, self.test)
        seeds = str(self.seeds)
        if self.run < self.seeds:  # its figures are told; a verdict is not, before all have run
            what, seeds = f"trial {self.trial}, under way", f"{self.run} of {self.seeds}"
        cells = (study, self.by, *searched, what, seeds, *over_default)
        return f"| {' | '.join(cells)} |"


def by_our_steps(study: StudySnapshot, by: str) -> Row:
    there = ended(study)
    return Row(
        study=study,
        by=by,
        trial=there.trial,
        seeds=there.seeds,
        run=there.seeds,
        test=there.test,
    )


def by_its_model(study: StudySnapshot, picks: Mapping[str, int | None]) -> Row:
    """What the model recommended before it was confirmed.

    Raises:
        SystemExit: it was noted, and nothing of it has run.
    """
    there, trial = ended(study), picks[study.name]
    test, run = None, there.seeds
    if trial is not None:
        runs = [run for run in study.runs if run.session == there.session]
        found = as_configurations(study.name, runs, device_model=study.device_model)
        here = next((each for each in found if each.trial_number == trial), None)
        if here is None or there.default is None:
            raise SystemExit(
                f"{study.name}: trial {trial}, which its model recommends, has not run yet"
            )
        run, margin = len(here.runs), there.frozen.margin
        test = tested(
            here, there.default, margin=margin, looks=there.looks, question=Question.MARGIN
        )
    return Row(study=study, by=ITS_MODEL, trial=trial, seeds=there.seeds, run=run, test=test)


def rows(
    studies: Sequence[StudySnapshot],
    beside: Sequence[StudySnapshot],
    picks: Mapping[str, int | None],
) -> list[Row]:
    """Ours of the same variants first."""
    variants = {each.variant for each in studies}
    found = [by_our_steps(each, OURS) for each in beside if each.variant in variants]
    for each in studies:
        found += [by_our_steps(each, OUR_STEPS), by_its_model(each, picks)]
    models = {each.study.device_model for each in found}
    if len(models) != 1:
        raise SystemExit(
            f"searches on one GPU model were expected, they are of {sorted(map(str, models))}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--beside", type=Path, required=True, help="searches of our own")
    options = parser.parse_args()
    picks = json.loads((options.folder / "picks.json").read_text(encoding="utf-8"))
    found = rows(read(options.folder), read(options.beside), picks)
    where = circumstances(str(found[0].study.device_model))
    text = [HEADER, "|---|---|---|---|---|---|---|---|---|", *(each.line() for each in found)]
    document = where | {"rows": [each.as_dict() for each in found]}
    write(options.output, document, [*heading(where), *text])
    print("\n".join(text))


if __name__ == "__main__":
    main()
