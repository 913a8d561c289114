"""Leases of workers on one device, and a stranger who takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import delete, update

from tests.support.in_process_worker import DEVICE
from tuner.storage.dialects import database_now
from tuner.storage.queue.device_leases import DeviceLeases
from tuner.storage.schema import device_leases
from tuner.study.open import OpenStudy
from tuner.worker.device_lease import DeviceLease
from tuner.worker.paths import Retry
from tuner.worker.process import Heartbeat, StopFlag

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
