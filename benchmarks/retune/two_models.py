"""The same retune on two GPU models: does the verdict hold, and which half of the time changes?

    python benchmarks/retune/two_models.py benchmarks/retune/campaign benchmarks/retune/h100 --output OUT/two-models

The folders hold studies as `tuner study export` writes them; what they have in common is one variant, and that is compared.
Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.retune.report import read
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.retune_cost import epochs_of
from tuner.verdict.stats.intervals import Interval

HEADER = (
    "| GPU | search | verdict | time over the default's | epochs over the default's "
    "| seconds an epoch over the default's |"
)
DEFAULTS = (
    "| GPU | runs of the default | epochs, median | seconds an epoch, median | time s, median |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnModel:
    """What one folder holds: a retune on one GPU model."""

    model: str
    confirmations: tuple[Confirmation, ...]

    @property
    def default(self) -> dict[str, Any]:
        """Of all confirming runs of the default that converged."""
        runs = [
            (seen.epochs, seen.s_per_epoch, seen.wall_clock_s)
            for each in self.confirmations
            if each.default is not None
            for run in each.default.clean
            if run.result is not None
            and (seen := run.result.recorded).epochs
            and seen.s_per_epoch
            and seen.wall_clock_s
        ]
        if not runs:
            raise SystemExit(f"{self.model}: no confirming run of the default converged")
        epochs, paces, times = (statistics.median(each) for each in zip(*runs, strict=True))
        return {"runs": len(runs), "epochs": epochs, "s_per_epoch": paces, "wall_clock_s": times}


def of_the_same_variant(folders: Sequence[Sequence[StudySnapshot]]) -> list[list[StudySnapshot]]:
    """Of each folder, the searches of the variant that all of them have.

    Raises:
        SystemExit: they have none in common, or several.
    """
    common = set.intersection(*({each.variant for each in studies} for studies in folders))
    if len(common) != 1:
        raise SystemExit(f"one variant in common was expected, there are {sorted(common)}")
    (variant,) = common
    return [[each for each in studies if each.variant == variant] for studies in folders]


def on_model(studies: Sequence[StudySnapshot]) -> OnModel:
    models = {each.device_model for each in studies if each.device_model is not None}
    if len(models) != 1:
        raise SystemExit(f"studies of one GPU model were expected, they are of {sorted(models)}")
    return OnModel(
        model=models.pop(),
        confirmations=tuple(filter(None, map(confirmation_of, studies))),
    )


def ratios_of(there: Confirmation) -> tuple[Interval | None, Interval | None, Interval | None]:
    """Over the default's: time, epochs, and seconds an epoch."""
    time = there.test.ratio if there.test is not None else None
    if (parts := epochs_of(there)) is None:
        return time, None, None
    return time, parts.epochs, parts.s_per_epoch


def rows(found: OnModel) -> list[dict[str, Any]]:
    """A row of each search."""
    made = []
    for each in found.confirmations:
        time, epochs, pace = (ratio and ratio.as_estimate() for ratio in ratios_of(each))
        made.append(
            {
                "model": found.model,
                "study": each.study,
                "trial": each.trial,
                "confirmed": each.holds,
                "time_ratio": time,
                "epochs_ratio": epochs,
                "s_per_epoch_ratio": pace,
            }
        )
    return made


def table(found: Sequence[OnModel]) -> list[str]:
    lines = [HEADER, "|---|---|---|---|---|---|"]
    for one in found:
        for each in one.confirmations:
            verdict = "confirmed" if each.holds else "not shown"
            told = [format(ratio, ".2f") if ratio else "-" for ratio in ratios_of(each)]
            lines.append(
                f"| {one.model} | {each.study}, trial {each.trial} | {verdict} | {' | '.join(told)} |"
            )
    lines += ["", DEFAULTS, "|---|---|---|---|---|"]
    for one in found:
        of = one.default
        lines.append(
            f"| {one.model} | {of['runs']} | {of['epochs']:g} | {of['s_per_epoch']:.4f} "
            f"| {of['wall_clock_s']:.3f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs=2)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    found = list(map(on_model, of_the_same_variant([read(each) for each in options.folders])))
    where = circumstances(" and ".join(each.model for each in found))
    lines = table(found)
    document = where | {
        "searches": [row for each in found for row in rows(each)],
        "defaults": {each.model: each.default for each in found},
    }
    write(options.output, document, [*heading(where), *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
