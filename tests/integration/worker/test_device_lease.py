"""A worker's lease on its device: kept between trainings, given up to strangers, and never taken
for one that it was not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import delete, event, select, update

from tests.support.cli_processes import wait_for
from tests.support.in_process_worker import DEVICE, away, result_of
from tuner.config import StopReason
from tuner.spec.policy import SearchPolicy
from tuner.storage.database_clock import database_now
from tuner.storage.queue.device_leases import DeviceLeases
from tuner.storage.schema import device_leases
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker.alone import trained_alone
from tuner.worker.device_lease import DeviceLease
from tuner.worker.heartbeat import Heartbeat
from tuner.worker.loop import Worker
from tuner.worker.outages import Retry
from tuner.worker.stop import StopFlag

ONE, OTHER = "1" * 64, "2" * 64
Made = Callable[..., DeviceLease]


def rows_of(study: OpenStudy, name: str, *, confirm_s: float = 0.0) -> DeviceLeases:
    return DeviceLeases(
        engine=study.database.engine,
        keys=DEVICE.lease_keys,
        worker=name,
        host=f"host-of-{name}",
        confirm_s=confirm_s,
    )


@pytest.fixture
def leases(opened: OpenStudy) -> Iterator[Made]:
    """Makes the lease of a worker, which ends with the test."""
    made: list[DeviceLease] = []

    def make(name: str, domain: str) -> DeviceLease:
        stored = Retry([opened], name, StopFlag(), Heartbeat())
        made.append(DeviceLease(rows_of(opened, name), "CPU core 0", stored, lambda: domain))
        return made[-1]

    yield make
    for lease in made:
        lease.close()


def rows(study: OpenStudy) -> list[str]:
    """Who has the device or waits for it."""
    with study.database.engine.connect() as connection:
        return list(connection.execute(select(device_leases.c.worker)).scalars())


def held_by(study: OpenStudy) -> set[str]:
    held = select(device_leases.c.worker).where(device_leases.c.state == "held")
    with study.database.engine.connect() as connection:
        return set(connection.execute(held).scalars())


def taken_from(study: OpenStudy, name: str) -> None:
    """As if the worker had been frozen for minutes: another waits for long enough, and gets it."""
    with study.database.engine.begin() as connection:
        gone = update(device_leases).where(device_leases.c.worker == name)
        connection.execute(gone.values(leased_until=database_now() - 1.0))
    assert rows_of(study, "stranger").advance(OTHER)[0] is None


def given_back(study: OpenStudy) -> None:
    with study.database.engine.begin() as connection:
        connection.execute(delete(device_leases).where(device_leases.c.worker == "stranger"))


def never() -> bool:
    return False


def test_a_lease_that_nobody_wants_costs_no_statement_between_trainings(
    opened: OpenStudy, leases: Made
) -> None:
    lease = leases("ann", ONE)
    with lease.taken(never) as mine:
        assert mine
    said: list[str] = []
    event.listen(
        opened.database.engine, "before_cursor_execute", lambda *call: said.append(call[2])
    )
    for _ in range(3):
        with lease.taken(never) as mine:
            assert mine
            assert lease.why_not_alone() == ""
    assert said == []
    assert held_by(opened) == {"ann"}


def test_it_is_given_up_after_the_training_where_a_stranger_waits(
    opened: OpenStudy, leases: Made, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ann, ben = leases("ann", ONE), leases("ben", OTHER)
    in_turn: list[str] = []

    def wait() -> None:
        with ben.taken(never) as mine:
            assert mine
            in_turn.append("ben")
        ben.look()

    with ann.taken(never):
        other = threading.Thread(target=wait)
        other.start()
        wait_for(lambda: "waiting for CPU core 0: worker ann" in caplog.text, "a line of the log")
        in_turn.append("ann")
    assert "on host-of-ann has it since 2" in caplog.text
    ann.look()
    with ann.taken(never):
        in_turn.append("ann again")
    other.join()
    assert in_turn == ["ann", "ben", "ann again"]


def test_a_worker_that_finds_nothing_to_do_gives_it_up_to_who_waits(
    opened: OpenStudy, leases: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the search is the other one's, and needs the device."""
    monkeypatch.setattr("tuner.worker.device_lease.LOOK_S", 0.0)
    lease, stranger = leases("ann", ONE), rows_of(opened, "ben")
    with lease.taken(never):
        pass
    assert stranger.advance(OTHER)[0] is not None
    worker = Worker([opened], DEVICE, result_of, name="ann", lease=lease)
    with worker._desk.taken():
        worker._idle(0.0)
    assert stranger.advance(OTHER)[0] is None


def test_who_is_told_to_stop_waits_no_longer_and_leaves_the_queue(
    opened: OpenStudy, leases: Made
) -> None:
    with leases("ann", ONE).taken(never), leases("ben", OTHER).taken(lambda: True) as mine:
        assert not mine
    assert rows(opened) == ["ann"]


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


def test_an_outage_shorter_than_the_lease_is_nothing_that_a_training_waits_for(
    opened: OpenStudy, leases: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases("ann", ONE)
    with lease.taken(never):
        monkeypatch.setattr(DeviceLeases, "renew", away)
        lease._try_to_renew()
        assert lease.why_not_alone() == ""
    monkeypatch.undo()


@pytest.mark.parametrize("lanes", [1, 2])
def test_two_workers_without_common_lock_files_never_train_together(
    opened: OpenStudy, leases: Made, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.worker.device_lease.LOOK_S", 0.0)
    monkeypatch.setattr("tuner.worker.device_lease.POLL_S", 0.01)
    opened.ledger.set_budget(12)
    inside, both = threading.Lock(), list[str]()
    order: list[str] = []
    started = threading.Barrier(2)

    def training_of(name: str) -> Callable[[TrialJob], object]:
        def run(job: TrialJob) -> object:
            if not inside.acquire(blocking=False):
                both.append(name)
                return result_of(job)
            order.append(name)
            if len(order) == 1:  # else one could be done before the other one is there
                wait_for(lambda: len(rows(opened)) == 2, "the other worker in the queue")
            threading.Event().wait(0.02)
            inside.release()
            return result_of(job)

        return run

    def work(name: str, domain: str) -> None:
        worker = Worker(
            [opened],
            DEVICE,
            training_of(name),  # type: ignore[arg-type]
            name=name,
            lanes=lanes,
            lease=leases(name, domain),
        )
        started.wait()
        worker.run()

    others = [threading.Thread(target=work, args=each) for each in (("ann", ONE), ("ben", OTHER))]
    for each in others:
        each.start()
    for each in others:
        each.join()
    assert both == []
    assert opened.ledger.counts().finished == 12
    assert set(order) == {"ann", "ben"}


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
