"""A wait for a device that somebody else has costs no device hours, and ends nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.databases import SQLITE_ALONE
from tests.support.device_hours import hours_of, plan_runs
from tests.support.drawn_verifications import DEVICE, drawn_result
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.device_leases import DeviceLeases
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.verdict.verified import verifications_of
from tuner.worker.device_lease import DeviceLease
from tuner.worker.loop import Worker
from tuner.worker.paths import Retry
from tuner.worker.process import Heartbeat, StopFlag
from tuner.worker.trial_source import VerificationSource

WAIT_S = 1.5


def limited(study: OpenStudy, seconds: float) -> GpuHours:
    study.ledger.set_budget(1)
    study.set_policy(SearchPolicy(sampler="random", prune=False, max_gpu_s=seconds))
    return hours_of([study])


@contextmanager
def held_for(study: OpenStudy, seconds: float) -> Iterator[DeviceLease]:
    """A worker's lease on the device, which a stranger holds for so long from now on."""
    engine = study.database.engine
    stranger = DeviceLeases(engine=engine, keys=DEVICE.lease_keys, worker="other", host="h")
    assert stranger.advance("1" * 64)[0] is None
    timer = threading.Timer(seconds, stranger.release)
    mine = DeviceLeases(engine=engine, keys=DEVICE.lease_keys, worker="ann", host="h")
    stored = Retry([study], "ann", StopFlag(), Heartbeat())
    lease = DeviceLease(mine, "CPU core 0", stored, lambda: "2" * 64)
    timer.start()
    yield lease
    lease.close()
    timer.join()


def quick(job: TrialJob) -> TrialResult | None:
    """A training of a tenth of a second, which looks once whether it is to stop."""
    time.sleep(0.1)
    return None if job.should_stop() is not None else drawn_result(job, seconds=0.1)


@SQLITE_ALONE
def test_a_verification_run_that_only_waited_is_not_cut(study: OpenStudy) -> None:
    hours = limited(study, WAIT_S * 0.7)
    plan_runs(study, 1)
    with held_for(study, WAIT_S) as lease:
        Worker([study], DEVICE, quick, source=VerificationSource, name="ann", lease=lease).run()
    assert [each.state for each in verifications_of([study]).runs()] == ["finished"]
    assert hours.spent_s() < WAIT_S * 0.5


@SQLITE_ALONE
@pytest.mark.parametrize("verify", [False, True])
def test_what_was_handed_back_after_a_wait_costs_what_it_had_its_device_for(
    study: OpenStudy, verify: bool
) -> None:
    hours, stop = limited(study, 100.0), StopFlag()
    plan_runs(study, 1)

    def interrupted(job: TrialJob) -> None:
        time.sleep(0.1)
        stop.set()

    source = {"source": VerificationSource} if verify else {}
    with held_for(study, WAIT_S) as lease:
        Worker([study], DEVICE, interrupted, name="ann", lease=lease, stop=stop, **source).run()  # type: ignore[arg-type]
    assert 0.1 <= hours.spent_s() < WAIT_S * 0.5
