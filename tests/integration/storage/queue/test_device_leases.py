"""Leases on devices: one domain has a device at a time, and domains take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, update

from tests.support.databases import SQLITE_ALONE
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.queue.device_leases import DeviceLeases
from tuner.storage.schema import device_leases

ONE, OTHER, THIRD = "1" * 64, "2" * 64, "3" * 64
Made = Callable[..., DeviceLeases]


@pytest.fixture
def leases(database: Database) -> Made:
    """Makes the leases of a worker; of one device where no other is named."""

    def make(worker: str, *keys: str, confirm_s: float = 30.0) -> DeviceLeases:
        return DeviceLeases(
            engine=database.engine,
            keys=keys or ("GPU-1",),
            worker=worker,
            host=f"host-of-{worker}",
            confirm_s=confirm_s,
        )

    return make


def run_out(database: Database, worker: str) -> None:
    with database.engine.begin() as connection:
        gone = update(device_leases).where(device_leases.c.worker == worker)
        connection.execute(gone.values(leased_until=database_now() - 1.0))


def has(lease: DeviceLeases, domain: str) -> bool:
    return lease.advance(domain)[0] is None


def test_domains_take_turns_and_who_waits_is_told_for_whom(
    leases: Made, database: Database
) -> None:
    ann, ben = leases("ann"), leases("ben")
    assert has(ann, ONE)
    assert has(leases("eve", "GPU-2"), OTHER), "another device is nobody's business"
    assert not ann.renew(ONE).others_wait
    for first, second in ((ann, ben), (ben, ann), (ann, ben)):
        mine, theirs = (ONE, OTHER) if first is ann else (OTHER, ONE)
        ahead, over = second.advance(theirs)
        assert ahead is not None
        assert (ahead.worker, ahead.state, over) == (first.worker, "held", False)
        assert (ahead.host, ahead.ran_out) == (f"host-of-{first.worker}", False)
        assert first.renew(mine).others_wait
        first.release()
        assert not has(first, mine)  # behind who waited
        assert has(second, theirs)
    for lease in (ann, ben, leases("eve", "GPU-2")):
        lease.release()
    with database.engine.connect() as connection:
        query = select(func.count()).select_from(device_leases)
        assert connection.execute(query).scalar_one() == 0


@SQLITE_ALONE
def test_who_comes_later_of_the_holders_domain_waits_behind_a_stranger(leases: Made) -> None:
    ann, ben, cid = leases("ann"), leases("ben"), leases("cid")
    assert has(ann, ONE)
    assert has(leases("dan"), ONE), "workers of one domain have it together"
    leases("dan").release()
    assert not has(ben, OTHER)
    assert not has(cid, ONE)
    ann.release()
    assert not has(cid, ONE)
    assert has(ben, OTHER)


@SQLITE_ALONE
def test_sets_of_cores_that_overlap_are_never_waited_for_in_a_circle(leases: Made) -> None:
    ann, ben, cid = leases("ann", "0", "1"), leases("ben", "1", "2"), leases("cid", "0", "2")
    assert has(ann, ONE)
    assert not has(ben, OTHER)
    assert not has(cid, THIRD)
    ann.release()
    waiting = {"ben": (ben, OTHER), "cid": (cid, THIRD)}
    for _ in range(4):
        for name, (lease, domain) in list(waiting.items()):
            if has(lease, domain):
                lease.release()
                del waiting[name]
    assert not waiting


def test_a_lease_that_ran_out_stands_until_it_was_watched(leases: Made, database: Database) -> None:
    ann, ben = leases("ann"), leases("ben", confirm_s=0.2)
    assert has(ann, ONE)
    run_out(database, "ann")
    ahead, _ = ben.advance(OTHER)
    assert ahead is not None
    assert ahead.ran_out
    assert not ann.renew(ONE).lost  # nobody had it meanwhile
    time.sleep(0.2)
    assert not has(ben, OTHER)
    run_out(database, "ann")
    assert not has(ben, OTHER)
    time.sleep(0.2)
    assert ben.advance(OTHER) == (None, True)
    assert ann.renew(ONE).lost


@SQLITE_ALONE
def test_who_trained_on_without_a_lease_says_so_to_who_has_it(
    leases: Made, database: Database
) -> None:
    ann, ben = leases("ann"), leases("ben", confirm_s=0.0)
    assert has(ann, ONE)
    run_out(database, "ann")
    assert has(ben, OTHER)
    assert ben.renew(OTHER).disturbed == ""
    ann.tell_disturbed(ONE)
    assert "ann on host-of-ann trained there as well" in ben.renew(OTHER).disturbed
    ben.forgive()
    assert ben.renew(OTHER).disturbed == ""


def test_one_that_waits_and_is_gone_keeps_nobody_waiting(leases: Made, database: Database) -> None:
    ann, ben, cid = leases("ann"), leases("ben"), leases("cid")
    assert has(ann, ONE)
    assert not has(ben, OTHER)
    assert not has(cid, THIRD)
    run_out(database, "ben")
    ann.release()
    assert has(cid, THIRD)


def test_many_at_once_never_have_it_together(leases: Made) -> None:
    lock, inside, seen = threading.Lock(), set[str](), list[str]()
    all_there = threading.Barrier(4)

    def worker(number: int) -> None:
        domain = str(number) * 64
        lease = leases(f"worker-{number}", "0", "1")
        all_there.wait()
        for _ in range(2):
            while not has(lease, domain):
                time.sleep(0.005)
            with lock:
                assert not inside
                inside.add(domain)
            time.sleep(0.005)
            with lock:
                inside.remove(domain)
                seen.append(domain)
            lease.release()

    failures: list[BaseException] = []

    def survived(number: int) -> None:
        try:
            worker(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=survived, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert len(seen) == 8
