"""What was recommended against its default on other data: on the series and the split that decide
nothing.

A search that chose by the test split has fitted it, and fresh seeds do not undo that. Whether what
it found is as good elsewhere says something of it; but who looks at several splits and lets the
kindest decide has chosen once more, so these are figures with intervals and no test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.record import Recorded
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.stats.noninferiority import paired_ratio
from tuner.verdict.verified import Verified

TEST, VALIDATION = "test", "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The MQL on one series of one split as a multiple of the default's."""

    series: str
    split: str
    ratio: Interval
    """The geometric mean over shared seeds, with its 95 % interval."""

    def as_dict(self) -> dict[str, Any]:
        return {"series": self.series, "split": self.split, "mql_ratio": self.ratio.as_estimate()}


def elsewhere(a: Verified, b: Verified) -> tuple[Elsewhere, ...]:
    """`a` against `b` on each series of each split but the one whose test MQL decides.

    Empty where no series are recorded; a series of which too few seeds are shared is left out.
    """
    found = []
    for split in (TEST, VALIDATION):
        for series in sorted({name for run in _recorded(a) for name in _scores(run, split)}):
            if split == TEST and _decides(a, series):
                continue
            ratio = paired_ratio(_by_seed(a, series, split), _by_seed(b, series, split))
            if ratio is not None:
                found.append(Elsewhere(series=series, split=split, ratio=ratio))
    return tuple(found)


def _recorded(found: Verified) -> list[Recorded]:
    return [run.result.recorded for run in found.counted if run.result is not None]


def _scores(recorded: Recorded, split: str) -> Mapping[str, float | None]:
    return recorded.series_test_mql if split == TEST else recorded.series_val_mql


def _decides(found: Verified, series: str) -> bool:
    """Whether the test MQL is that of this series, in every run."""
    return all(run.series_test_mql.get(series) == run.test_mql for run in _recorded(found))


def _by_seed(found: Verified, series: str, split: str) -> dict[int, float]:
    """What has a logarithm."""
    scores: dict[int, float] = {}
    for run in found.counted:
        if run.result is None:
            continue
        score = _scores(run.result.recorded, split).get(series)
        if score is not None and score > 0:
            scores[run.seed] = score
    return scores
