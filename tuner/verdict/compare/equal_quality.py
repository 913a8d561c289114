"""Time at equal quality: of each variant, the fastest verified configuration that forecasts at
least as well as that.

Two picks seldom forecast alike, so "faster, and a little worse" leaves the question open. Here
quality is held still and time is compared, as MLPerf's time to train does with a target (Mattson et
al., "MLPerf Training Benchmark", 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.stats.effects import Sample
from tuner.verdict.stats.intervals import (
    CONFIDENCE,
    Interval,
    in_json,
    percentile_interval,
    resampled_runs,
)
from tuner.verdict.verified import Verified, verified_in

_RESAMPLES = 999
_LEAST_DIGITS = 4
_ALIKE = 1e-12
"""A median that lies so little above a level, relatively, is at it: rounding is no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """A variant's fastest verified configuration among those whose median test MQL is at the level
    or under it.

    `ratio` is its time divided by the first variant's at the same level, with an interval that
    resamples seeds and chooses anew in each resample. None for the first variant, and where one of
    the two misses the level in more than one resample of twenty.
    """

    study: str
    variant: str
    trial: int
    seconds: Interval
    ratio: Interval | None

    def as_dict(self) -> dict[str, Any]:
        plain = in_json(self, "study", "variant", "trial", "ratio")
        return plain | {"seconds": self.seconds.as_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A test MQL, and who reaches it how fast:
    one of `fastest` a study, None where no verified configuration does.
    """

    mql: float
    fastest: tuple[Fastest | None, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "test_mql_at_most": self.mql,
            "fastest": [each.as_dict() if each else None for each in self.fastest],
        }


def levels_of(studies: Sequence[StudySnapshot], registered: Sequence[float]) -> tuple[Level, ...]:
    """The times at each of the registered levels, from the best to the worst.

    Empty unless all studies have verified configurations, by one clock on one device model. A
    configuration of which a run missed is left out: it does not reach a level whatever the seed.
    """
    if len({(study.device_model, study.definition.objectives[0]) for study in studies}) != 1:
        return ()
    tables = [_Table.of(study) for study in studies]
    if not all(table.verified for table in tables):
        return ()
    samples = [sample for table in tables for sample in table.samples]
    seeds = sorted(set().union(*(sample.seconds.keys() | sample.mql.keys() for sample in samples)))
    least = min(len(figures) for sample in samples for figures in (sample.seconds, sample.mql))
    drawn = [table.resampled(seeds) for table in tables]
    return tuple(_level(level, tables, drawn, least) for level in sorted(set(registered)))


@dataclass(frozen=True, slots=True)
class _Resampled:
    """Medians of resampled seeds, times in seconds and MQLs: (configurations, resamples).

    Infinite where a resample holds no run of a configuration.
    """

    seconds: NDArray[np.float64]
    mql: NDArray[np.float64]

    def least(self, level: float) -> NDArray[np.float64]:
        """Each resample's least time at the level,
        infinite where it is not reached: (resamples,).
        """
        least: NDArray[np.float64] = np.where(
            self.mql <= _reaching(level), self.seconds, np.inf
        ).min(axis=0)
        return least


@dataclass(frozen=True, slots=True)
class _Table:
    """A study's verified configurations that never missed."""

    study: StudySnapshot
    verified: tuple[Verified, ...]

    @classmethod
    def of(cls, study: StudySnapshot) -> _Table:
        there = (each for each in verified_in(study).values() if not each.misses)
        return cls(
            study,
            tuple(each for each in there if each.seconds is not None and each.mql is not None),
        )

    @property
    def samples(self) -> list[Sample]:
        return [each.sample() for each in self.verified]

    def resampled(self, seeds: Sequence[int]) -> _Resampled:
        samples = self.samples
        return _Resampled(
            np.array([_medians(each.seconds, seeds) for each in samples]),
            np.array([_medians(each.mql, seeds) for each in samples]),
        )

    def fastest(self, level: float) -> tuple[int, Interval] | None:
        """Trial number and seconds of the fastest at the level."""
        able = [
            (each.trial_number, each.seconds)
            for each in self.verified
            if each.seconds is not None
            and each.mql is not None
            and each.mql.estimate <= _reaching(level)
        ]
        return min(able, key=lambda found: found[1].estimate, default=None)


def _medians(figures: Mapping[int, float], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Medians of what there is of each resample of `seeds`: (resamples,).

    A seed without a figure, such as a disturbed timing, is no reason to leave it out for all the
    others.
    """
    values = np.array([figures.get(seed, np.nan) for seed in seeds])
    drawn = np.sort(
        values[resampled_runs(len(seeds), _RESAMPLES)], axis=1
    )  # what is not there comes last
    there = np.count_nonzero(~np.isnan(drawn), axis=1)
    rows = np.arange(len(drawn))
    middle: NDArray[np.float64] = (
        drawn[rows, np.maximum(there - 1, 0) // 2] + drawn[rows, there // 2]
    ) / 2
    return np.where(there > 0, middle, np.inf)


def _level(
    level: float, tables: Sequence[_Table], drawn: Sequence[_Resampled], seeds: int
) -> Level:
    reference, of_reference = tables[0].fastest(level), drawn[0].least(level)
    fastest: list[Fastest | None] = []
    for table, resampled in zip(tables, drawn, strict=True):
        found, ratio = table.fastest(level), None
        if found is not None and reference is not None and table is not tables[0]:
            estimate = found[1].estimate / reference[1].estimate
            ratio = _ratio(estimate, resampled.least(level), of_reference, seeds)
        named = table.study
        fastest.append(
            Fastest(
                study=named.name,
                variant=named.variant,
                trial=found[0],
                seconds=found[1],
                ratio=ratio,
            )
            if found is not None
            else None
        )
    return Level(mql=level, fastest=tuple(fastest))


def _ratio(
    estimate: float, a: NDArray[np.float64], b: NDArray[np.float64], seeds: int
) -> Interval | None:
    """The ratio of two resampled times (resamples,), each infinite where the level was missed."""
    both = np.isfinite(a) & np.isfinite(b)
    if both.mean() < CONFIDENCE:
        return None
    return percentile_interval(estimate, a[both] / b[both], seeds)


def _reaching(level: float) -> float:
    """The greatest median that counts as at the level."""
    return level + 2 * abs(level) * _ALIKE


def shown_levels(levels: Sequence[float]) -> list[str]:
    """Levels with as many digits as it takes to tell them apart, four significant ones at least."""
    digits = _LEAST_DIGITS
    while len({f"{level:.{digits}g}" for level in levels}) < len(set(levels)):
        digits += 1
    return [f"{level:.{digits}g}" for level in levels]
