"""A worker's lease on its device: kept between trainings, given up to strangers, and held by one
worker at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import event, select

from tests.support.cli_processes import wait_for
from tests.support.device_leases import ONE, OTHER, Made, never, rows_of
from tests.support.in_process_worker import DEVICE, away, result_of
from tuner.storage.queue.device_leases import DeviceLeases
from tuner.storage.schema import device_leases
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker


def rows(study: OpenStudy) -> list[str]:
    """Who has the device or waits for it."""
    with study.database.engine.connect() as connection:
        return list(connection.execute(select(device_leases.c.worker)).scalars())


def held_by(study: OpenStudy) -> set[str]:
    held = select(device_leases.c.worker).where(device_leases.c.state == "held")
    with study.database.engine.connect() as connection:
        return set(connection.execute(held).scalars())


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
    with worker._desk:
        worker._idle(0.0)
    assert stranger.advance(OTHER)[0] is None


def test_who_is_told_to_stop_waits_no_longer_and_leaves_the_queue(
    opened: OpenStudy, leases: Made
) -> None:
    with leases("ann", ONE).taken(never), leases("ben", OTHER).taken(lambda: True) as mine:
        assert not mine
    assert rows(opened) == ["ann"]


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
