"""The same retune on two GPU models: does the verdict hold, and which half of the time changes?

    python benchmarks/retune/two_models.py benchmarks/retune/campaign benchmarks/retune/h100 --output benchmarks/retune/two-models --readme README.md

The folders hold the studies of one variant, as `tuner study export` writes them. Writes OUTPUT.md and OUTPUT.json; and with
`--readme` what both came to, between its markers there.
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
from benchmarks.retune.report import LINK, read
from benchmarks.shared.circumstances import circumstances, heading, write
from benchmarks.shared.marked_sections import replaced
from tuner.storage.queue.device_time import device_seconds
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.epochs_of import epochs_of

MARKER = "retuned"
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
    variant: str
    search_s: float
    """That a search had devices for, in the mean."""
    confirmations: tuple[Confirmation, ...]

    @property
    def word(self) -> str:
        """As one says it: H200."""
        return self.model.removeprefix("NVIDIA ").split()[0]

    @property
    def confirmed(self) -> list[float]:
        """Times over the default's, of the searches that are confirmed."""
        tests = [each.test for each in self.confirmations]
        return [one.ratio.estimate for one in tests if one and one.claimed and one.ratio]

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


def on_model(studies: Sequence[StudySnapshot]) -> OnModel:
    models = {model for each in studies if (model := device_of(each)) is not None}
    if len(models) != 1:
        raise SystemExit(f"studies of one GPU model were expected, they are of {sorted(models)}")
    found = tuple(there for each in studies if (there := confirmation_of(each)) is not None)
    spent = [
        device_seconds(record.recorded)
        for each in studies
        for record in each.results.records
        if record.state.is_finished()
    ]
    return OnModel(
        model=models.pop(),
        variant=studies[0].definition.variant,
        search_s=sum(spent) / len(studies),
        confirmations=found,
    )


def device_of(study: StudySnapshot) -> str | None:
    return next(
        (each.recorded.device for each in study.results.records if each.recorded.device), None
    )


def rows(found: OnModel) -> list[dict[str, Any]]:
    """A row of each search."""
    made = []
    for each in found.confirmations:
        test, parts = each.test, epochs_of(each)
        claimed = test is not None and test.claimed
        made.append(
            {
                "model": found.model,
                "study": each.study,
                "trial": each.trial,
                "confirmed": claimed,
                "time_ratio": test.ratio.as_estimate() if test and test.ratio else None,
                "epochs_ratio": parts and parts.epochs.as_estimate(),
                "s_per_epoch_ratio": parts and parts.s_per_epoch.as_estimate(),
            }
        )
    return made


def in_words(ratio: dict[str, float] | None) -> str:
    if ratio is None:
        return "-"
    return "{estimate:.2f} [{low:.2f}, {high:.2f}]".format(**ratio)


def table(found: Sequence[OnModel]) -> list[str]:
    lines = [HEADER, "|---|---|---|---|---|---|"]
    for one in found:
        for row in rows(one):
            verdict = "confirmed" if row["confirmed"] else "not shown"
            ratios = (row["time_ratio"], row["epochs_ratio"], row["s_per_epoch_ratio"])
            told = " | ".join(map(in_words, ratios))
            lines.append(
                f"| {row['model']} | {row['study']}, trial {row['trial']} | {verdict} | {told} |"
            )
    lines += ["", DEFAULTS, "|---|---|---|---|---|"]
    for one in found:
        of = one.default
        lines.append(
            f"| {one.model} | {of['runs']} | {of['epochs']:g} | {of['s_per_epoch']:.4f} "
            f"| {of['wall_clock_s']:.3f} |"
        )
    return lines


def in_short(found: Sequence[OnModel]) -> str:
    """One line of both."""
    times = [time for each in found for time in each.confirmed]
    if not times:
        raise SystemExit("nothing is confirmed on either GPU model: there is no line to write")
    each_of = ", ".join(
        f"{len(each.confirmed)} of {len(each.confirmations)}{' confirmed' if not n else ''} on {each.word}s"
        for n, each in enumerate(found)
    )
    return (
        f"Longer searches of {found[0].variant} alone, {found[0].search_s:.0f} s each: {each_of}, in "
        f"{min(times):.2f} to {max(times):.2f} of its default's time ([campaign]({LINK}))."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs=2)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--readme", type=Path, help="a document with the line of both")
    options = parser.parse_args()
    found = [on_model(read(folder)) for folder in options.folders]
    if options.readme is not None:
        text = replaced(options.readme.read_text(encoding="utf-8"), MARKER, [in_short(found)])
        options.readme.write_text(text, encoding="utf-8")
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
