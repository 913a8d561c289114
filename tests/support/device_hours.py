"""What tests of device hours begin with: the limit of studies, and runs to make."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.verifications import PlannedRun
from tuner.study.open import OpenStudy
from tuner.verdict.verified import limits_of, verifications_of


def hours_of(studies: Sequence[OpenStudy]) -> GpuHours:
    """The one limit that they have."""
    (found,) = set(limits_of(studies).values())
    return found


def plan_runs(study: OpenStudy, seeds: int) -> None:
    """Its default configuration, to be verified on so many seeds."""
    runs = [
        PlannedRun(
            study_id=study.study_id,
            trial_number=0,
            block=seed,
            session="s",
            plan={"looks": []},
            seed=seed,
            place=seed,
            params=study.definition.defaults.as_dict(),
        )
        for seed in range(seeds)
    ]
    verifications_of([study]).add(runs)
