"""Time at equal quality: of each variant, the fastest verified configuration that forecasts at least as well as that.

Two picks seldom forecast alike, so "faster, and a little worse" leaves the question open. Here quality is held still
and time is compared, as MLPerf's time to train does with a target (Mattson et al., "MLPerf Training Benchmark", 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.compare.subject import Subject
from tuner.stats import Interval
from tuner.stats.intervals import CONFIDENCE, LEAST_RUNS, percentile_interval, resampled_medians
from tuner.study.verified import Verified

_RESAMPLES = 999
_STEPS = (5, 2, 1)
_FEWEST = 4
"""The range of what was verified is cut in at least so many levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """A variant's fastest verified configuration among those whose median test MQL is at the level or under it.

    `ratio` is its time divided by the first variant's at the same level, with an interval that resamples seeds and
    chooses anew in each resample. None for the first variant, and where one of the two misses the level in more than
    one resample of twenty.
    """

    study: str
    variant: str
    trial: int
    seconds: Interval
    ratio: Interval | None

    def as_dict(self) -> dict[str, Any]:
        ratio = self.ratio
        return {
            "study": self.study,
            "variant": self.variant,
            "trial": self.trial,
            "seconds": self.seconds.as_dict(),
            "ratio": {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high} if ratio else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A test MQL, and who reaches it how fast: one of `fastest` a study, None where no verified configuration does."""

    mql: float
    fastest: tuple[Fastest | None, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"test_mql_at_most": self.mql, "fastest": [each.as_dict() if each else None for each in self.fastest]}


def levels_of(subjects: Sequence[Subject]) -> tuple[Level, ...]:
    """Round levels over the range of the verified medians.

    Empty unless all studies have verified configurations, by one clock on one device model. A configuration of which a
    run missed is left out: it does not reach a level whatever the seed.
    """
    if len({(subject.device_model, subject.definition.objectives[0]) for subject in subjects}) != 1:
        return ()
    tables = [_Table.of(subject) for subject in subjects]
    seeds = _common([table for table in tables if table.verified])
    if not all(table.verified for table in tables) or len(seeds) < LEAST_RUNS:
        return ()
    drawn = [table.resampled(seeds) for table in tables]
    medians = [mql for table in tables for mql in table.mql]
    return tuple(_level(level, tables, drawn, len(seeds)) for level in round_levels(min(medians), max(medians)))


@dataclass(frozen=True, slots=True)
class _Resampled:
    """Medians of resampled seeds, times in seconds and MQLs: (configurations, resamples)."""

    seconds: NDArray[np.float64]
    mql: NDArray[np.float64]

    def least(self, level: float) -> NDArray[np.float64]:
        """Each resample's least time at the level, infinite where it is not reached: (resamples,)."""
        least: NDArray[np.float64] = np.where(self.mql <= level, self.seconds, np.inf).min(axis=0)
        return least


@dataclass(frozen=True, slots=True)
class _Table:
    """A study's verified configurations that never missed."""

    subject: Subject
    verified: tuple[Verified, ...]

    @classmethod
    def of(cls, subject: Subject) -> _Table:
        there = (each for each in subject.verified.values() if not each.misses)
        return cls(subject, tuple(each for each in there if each.seconds is not None and each.mql is not None))

    @property
    def mql(self) -> list[float]:
        return [each.mql.estimate for each in self.verified if each.mql is not None]

    def resampled(self, seeds: Sequence[int]) -> _Resampled:
        samples = [each.sample() for each in self.verified]

        def medians(figures: Mapping[int, float]) -> NDArray[np.float64]:
            return resampled_medians(np.array([figures[seed] for seed in seeds]), _RESAMPLES)

        return _Resampled(
            np.array([medians(each.seconds) for each in samples]), np.array([medians(each.mql) for each in samples])
        )

    def fastest(self, level: float) -> tuple[int, Interval] | None:
        """Trial number and seconds of the fastest at the level."""
        able = [
            (each.trial_number, each.seconds)
            for each in self.verified
            if each.seconds is not None and each.mql is not None and each.mql.estimate <= level
        ]
        return min(able, key=lambda found: found[1].estimate, default=None)


def _common(tables: Sequence[_Table]) -> list[int]:
    """Seeds with an undisturbed time and an MQL of every configuration."""
    samples = [each.sample() for table in tables for each in table.verified]
    return sorted(set.intersection(*(s.seconds.keys() & s.mql.keys() for s in samples))) if samples else []


def _level(level: float, tables: Sequence[_Table], drawn: Sequence[_Resampled], seeds: int) -> Level:
    reference, of_reference = tables[0].fastest(level), drawn[0].least(level)
    fastest: list[Fastest | None] = []
    for table, resampled in zip(tables, drawn, strict=True):
        found, ratio = table.fastest(level), None
        if found is not None and reference is not None and table is not tables[0]:
            estimate = found[1].estimate / reference[1].estimate
            ratio = _ratio(estimate, resampled.least(level), of_reference, seeds)
        named = table.subject
        fastest.append(
            Fastest(study=named.name, variant=named.variant, trial=found[0], seconds=found[1], ratio=ratio)
            if found is not None
            else None
        )
    return Level(mql=level, fastest=tuple(fastest))


def _ratio(estimate: float, a: NDArray[np.float64], b: NDArray[np.float64], seeds: int) -> Interval | None:
    """The ratio of two resampled times (resamples,), each infinite where the level was missed."""
    both = np.isfinite(a) & np.isfinite(b)
    if both.mean() < CONFIDENCE:
        return None
    return percentile_interval(estimate, a[both] / b[both], seeds)


def round_levels(lowest: float, highest: float) -> list[float]:
    """Multiples of a round step from just above the lowest median to just above the highest."""
    span = (highest - lowest) or abs(highest) * 1e-2 or 1.0
    power = 10.0 ** math.floor(math.log10(span / _FEWEST))
    step = next(power * digit for digit in _STEPS if power * digit <= span / _FEWEST * (1 + 1e-9))
    first, last = math.ceil(lowest / step - 1e-9), math.ceil(highest / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step)))
    return [round(number * step, decimals) for number in range(first, last + 1)]
