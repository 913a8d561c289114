"""A timing counts where its worker had the device for itself; else it is run again, or marked."""

from __future__ import annotations

import logging
import threading

import pytest
from sqlalchemy import update

from tests.support.cli_processes import wait_for
from tests.support.device_leases import ONE, OTHER, Made, given_back, never, rows_of, taken_from
from tests.support.in_process_worker import DEVICE, result_of
from tuner.config import StopReason
from tuner.spec.policy import SearchPolicy
from tuner.storage.dialects import database_now
from tuner.storage.schema import device_leases
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker.loop import trained_alone


def job_in(study: OpenStudy, reruns: int) -> TrialJob:
    return TrialJob(
        study=study.name,
        definition=study.definition,
        policy=SearchPolicy(reruns=reruns),
        number=0,
        hyperparameters=study.definition.defaults,
        device=DEVICE,
        on_epoch=lambda _record, _repeat: None,
        should_stop=lambda: None,
    )


def test_a_training_whose_lease_another_got_meanwhile_is_run_again(
    opened: OpenStudy, leases: Made
) -> None:
    runs: list[StopReason | None] = []

    def train(job: TrialJob) -> object:
        if not runs:
            taken_from(opened, "ann")
            lease._try_to_renew()
            given_back(opened)
        runs.append(job.should_stop())
        return None if runs[-1] else result_of(job)

    lease = leases("ann", ONE)
    result = trained_alone(lease, job_in(opened, reruns=1), train)  # type: ignore[arg-type]
    assert runs == [StopReason.INTERRUPTED, None]
    assert result is not None
    assert not result.recorded.contaminated


def test_a_timing_whose_lease_ran_out_unseen_is_marked_and_says_why(
    opened: OpenStudy, leases: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases("ann", ONE)

    def train(job: TrialJob) -> object:
        taken_from(opened, "ann")
        later = time_now() + 61.0  # nobody renewed: the database was away
        monkeypatch.setattr("tuner.worker.device_lease.now", lambda: later)
        return result_of(job)

    from tuner.worker.device_lease import now as time_now

    result = trained_alone(lease, job_in(opened, reruns=0), train)  # type: ignore[arg-type]
    assert result is not None
    assert result.recorded.contaminated
    assert result.recorded.contamination == (
        "the lease on the device ran out meanwhile, and another worker was given it"
    )
    assert rows_of(opened, "stranger").renew(OTHER).disturbed != ""


def test_a_lease_that_ran_out_while_nobody_else_came_spoils_nothing(
    opened: OpenStudy, leases: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases("ann", ONE)

    def train(job: TrialJob) -> object:
        with opened.database.engine.begin() as connection:
            connection.execute(update(device_leases).values(leased_until=database_now() - 1.0))
        later = time_now() + 61.0
        monkeypatch.setattr("tuner.worker.device_lease.now", lambda: later)
        return result_of(job)

    from tuner.worker.device_lease import now as time_now

    result = trained_alone(lease, job_in(opened, reruns=0), train)  # type: ignore[arg-type]
    assert result is not None
    assert not result.recorded.contaminated


def test_who_took_over_hears_that_the_one_before_trained_on(
    opened: OpenStudy, leases: Made
) -> None:
    frozen, lease = leases("frozen", OTHER), leases("ann", ONE)

    def train(job: TrialJob) -> object:
        frozen._try_to_renew()
        return result_of(job)

    with frozen.taken(never):
        with opened.database.engine.begin() as connection:
            connection.execute(update(device_leases).values(leased_until=database_now() - 1.0))
        result = trained_alone(lease, job_in(opened, reruns=0), train)  # type: ignore[arg-type]
        assert frozen.is_lost()
    assert result is not None
    assert "frozen on host-of-frozen trained there as well" in str(result.recorded.contamination)


def test_time_spent_waiting_for_strangers_is_recorded_as_waiting(
    opened: OpenStudy, leases: Made, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stranger, lease = leases("stranger", OTHER), leases("ann", ONE)
    with stranger.taken(never):
        pass

    def leave() -> None:
        wait_for(lambda: "waiting for CPU core 0" in caplog.text, "somebody who waits")
        threading.Event().wait(0.3)
        stranger.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    result = trained_alone(lease, job_in(opened, reruns=0), result_of)
    leaving.join()
    assert result is not None
    assert (result.recorded.wait_s or 0.0) > 0.2
