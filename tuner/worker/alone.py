"""A training that has its device alone among all workers of the database, or else says so."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable

from optuna.trial import TrialState

from tuner.config import StopReason
from tuner.files.kinds import In
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.worker.device_lease import DeviceLease
from tuner.worker.paths import forget_trials
from tuner.worker.waited import Waited

TIMED = (TrialState.COMPLETE, TrialState.PRUNED)
"""Results that depend on the clock."""
Train = Callable[[TrialJob], TrialResult | None]
_log = logging.getLogger(__name__)


def trained_alone(lease: DeviceLease | None, job: TrialJob, train: Train) -> TrialResult | None:
    """The job's result, trained under the lease; None when it was interrupted.

    A training that loses the lease is stopped where it is seen in time. It begins anew then, as
    does one whose timing was spoiled, as often as the study repeats such timings; the last one
    counts, and says what was wrong with it.
    """
    waited = Waited(job.on_wait)
    job = dataclasses.replace(job, on_wait=waited.told)
    if lease is None:
        return _said(train(job), waited, "")
    runs: list[TrialResult] = []
    stop = job.should_stop
    for _ in range(1 + job.policy.reruns):
        waited.told(True)
        with lease.taken(give_up=lambda: stop() is not None) as mine:
            waited.told(False)
            if not mine:
                break
            began, before_s = time.perf_counter(), waited.seconds
            result = train(dataclasses.replace(job, should_stop=_until_lost(job, lease)))
            took_s = time.perf_counter() - began - (waited.seconds - before_s)
            job = _with_less(job, took_s)
            why = lease.why_not_alone()
        result = _said(result, waited, why)
        if result is not None:
            runs.append(result)
        if not why or (result is not None and result.state not in TIMED):
            return None if result is None else _with_all(runs)
        if job.may_take_s is not None and job.may_take_s <= 0:
            break
        _log.warning("trial %d was not alone on its device: %s", job.number, why)
        if job.checkpoints is not None and job.seed is None:
            forget_trials(job.checkpoints, {job.number})  # their clock went on beside another's
    return _with_all(runs) if runs else None


def _with_less(job: TrialJob, took_s: float) -> TrialJob:
    """The job with what is left of the time that it may take."""
    if job.may_take_s is None:
        return job
    return dataclasses.replace(job, may_take_s=job.may_take_s - took_s)


def _until_lost(job: TrialJob, lease: DeviceLease) -> Callable[[], StopReason | None]:
    def should_stop() -> StopReason | None:
        return StopReason.INTERRUPTED if lease.is_lost() else job.should_stop()

    return should_stop


def _said(result: TrialResult | None, waited: Waited, why: str) -> TrialResult | None:
    """The result with all that was waited so far, and why its timing is not to be trusted."""
    if result is None:
        return None
    recorded = result.recorded
    if waited.is_known:
        recorded = dataclasses.replace(recorded, wait_s=waited.seconds)
    if why and result.state in TIMED:
        said = "; ".join(filter(None, (recorded.contamination, why)))
        recorded = dataclasses.replace(recorded, contaminated=True, contamination=said)
    return dataclasses.replace(result, recorded=recorded)


def _with_all(runs: list[TrialResult]) -> TrialResult:
    """The last one, with the clocks of all."""
    last = runs[-1]
    if len(runs) == 1:
        return last
    timings = [run.recorded.kept_in(In.TIMINGS) for run in runs]
    return dataclasses.replace(last, recorded=dataclasses.replace(last.recorded, timings=timings))
