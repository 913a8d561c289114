"""How much of the plane each front of a comparison dominates,
below one reference point for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.pareto import Point, hypervolume, reference_point
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.stats.intervals import (
    LEAST_RUNS,
    Interval,
    percentile_interval,
    resampled_medians,
)
from tuner.verdict.verified import verified_in

_RESAMPLES = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Hypervolume of a variant's configurations:
    of verified medians with an interval, else of the search's front.
    """

    study: str
    variant: str
    verified: bool
    value: float
    interval: Interval | None
    mql_is: str = "test_mql"
    timings: int = 0
    contaminated: int = 0
    """Of so many timings of the search's trials, where it is of these."""

    def as_dict(self) -> dict[str, Any]:
        plain = {
            "study": self.study,
            "variant": self.variant,
            "verified": self.verified,
            "value": self.value,
            "mql_is": self.mql_is,
            "contaminated": self.contaminated,
        }
        ends = (
            {"low": self.interval.low, "high": self.interval.high}
            if self.interval
            else {"low": None, "high": None}
        )
        return plain | ends


def volumes_of(studies: Sequence[StudySnapshot]) -> tuple[list[Volume], Point | None]:
    """Hypervolumes below one reference point,
    a tenth beyond the worst of all medians (or of all unverified trials).

    All from verified medians, or all from the search where a study has none: never one of each
    kind.
    """
    medians = {study.name: _medians(study) for study in studies}
    if all(medians.values()):
        reference = reference_point(
            [point for points in medians.values() for point in points.values()]
        )
        return [
            Volume(
                study=s.name,
                variant=s.variant,
                verified=True,
                value=hypervolume(list(medians[s.name].values()), reference),
                interval=_interval(s, list(medians[s.name]), reference),
            )
            for s in studies
        ], reference
    shown = [study for study in studies if study.results.front]
    if not shown:
        return [], None
    reference = reference_point([point for study in shown for point in study.results.points])
    return [
        Volume(
            study=s.name,
            variant=s.variant,
            verified=False,
            value=hypervolume(s.results.points, reference),
            interval=None,
            mql_is=s.definition.objectives[1],
            timings=len(s.results.complete),
            contaminated=s.results.contaminated,
        )
        for s in shown
    ], reference


def _medians(study: StudySnapshot) -> dict[int, Point]:
    return {
        number: (each.seconds.estimate, each.mql.estimate)
        for number, each in verified_in(study).items()
        if each.seconds is not None and each.mql is not None
    }


def _interval(study: StudySnapshot, numbers: Sequence[int], reference: Point) -> Interval | None:
    """Bootstrap over seeds: each resample takes the same seeds of all configurations."""
    samples = [verified_in(study)[number].sample() for number in numbers]
    seeds = sorted(
        set.intersection(*(sample.seconds.keys() & sample.mql.keys() for sample in samples))
    )
    if len(seeds) < LEAST_RUNS:
        return None
    seconds = [
        resampled_medians(np.array([s.seconds[x] for x in seeds]), _RESAMPLES) for s in samples
    ]
    mql = [resampled_medians(np.array([s.mql[x] for x in seeds]), _RESAMPLES) for s in samples]
    volumes = [
        hypervolume(
            [(float(t[i]), float(m[i])) for t, m in zip(seconds, mql, strict=True)], reference
        )
        for i in range(_RESAMPLES)
    ]
    estimate = hypervolume([_medians(study)[number] for number in numbers], reference)
    return percentile_interval(estimate, volumes, len(seeds))
