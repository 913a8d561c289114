"""Verifications without the training: real plans, claims and results, and runs whose figures are
drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from optuna.trial import TrialState

from tuner.devices import CpuCores
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob, on_device
from tuner.verdict.confirmation_plan import taken_over
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.trial_source import VerificationSource


@dataclass(frozen=True, slots=True)
class ExampleDevice(CpuCores):
    """A device of the model that recorded studies are bound to."""

    @property
    def model(self) -> str:
        return "Example CPU, 2 cores"


DEVICE = ExampleDevice((0, 1))


def drawn_result(
    job: TrialJob,
    *,
    seconds: float = 10.0,
    mql: float = 0.8,
    sd_time: float = 0.03,
    sd_mql: float = 0.006,
) -> TrialResult:
    """What a run might give: a median of `seconds` and `mql`, with the noise of seed and
    configuration."""
    rng = np.random.default_rng([job.seed or 0, len(job.study), job.number])
    values = (float(seconds * np.exp(rng.normal(0, sd_time))), float(mql + rng.normal(0, sd_mql)))
    recorded = Recorded(
        stopped_by="converged",
        converged=True,
        contaminated=False,
        seed=job.seed,
        epochs=round(values[0]),
        s_per_epoch=values[0] / round(values[0]),
        val_loss=values[1] / 4,
        val_mql=values[1] - 0.01,
        wall_clock_s=values[0],
        test_mql=values[1],
        backend="eager",
        precision="fp32",
    )
    return TrialResult(TrialState.COMPLETE, values, on_device(recorded, job.device))


def known(*, mql: float) -> Callable[[TrialJob], TrialResult]:
    """Runs that all take as long: those of trial 0 with an MQL of 0.8, the others with `mql`."""

    def run(job: TrialJob) -> TrialResult:
        return drawn_result(job, seconds=10.0, mql=0.8 if job.number == 0 else mql)

    return run


def missed(job: TrialJob, *, mql: float = 0.8) -> TrialResult:
    """A run that ended at its epoch limit: Optuna would call it complete, a verdict a miss, unless
    it is of a default that is cut off.
    """
    result = drawn_result(job, mql=mql)
    return TrialResult(
        result.state,
        result.values,
        replace(result.recorded, stopped_by="epoch_limit", converged=False),
    )


def verify_all(
    opened: Sequence[OpenStudy],
    run: Callable[[TrialJob], TrialResult | None] = drawn_result,
    *,
    name: str = "verifier",
) -> None:
    """Make all runs that are planned; what searches share is taken over, as a call does that plans
    what is left.
    """
    Worker(opened, DEVICE, run, source=VerificationSource, name=name).run()
    queue = verifications_of(opened)
    queue.add(taken_over(opened, queue.runs()))
