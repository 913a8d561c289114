"""Cores that no other worker of this host has."""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path

import pytest

from tuner.cli.device import own_device
from tuner.devices.lock import NoneFreeError, assign_free_cores, once_free
from tuner.errors import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))


def leave(*assigned: dict[int, int]) -> None:
    for descriptor in (each for one in assigned for each in one.values()):
        os.close(descriptor)


def test_no_two_workers_share_a_core_and_who_leaves_makes_room() -> None:
    first = assign_free_cores(2, range(5))
    second = assign_free_cores(2, range(5))
    assert (tuple(first), tuple(second)) == ((0, 1), (2, 3))
    with pytest.raises(NoneFreeError, match="free:2: 1 of the 5 cores here have no worker"):
        assign_free_cores(2, range(5))
    third = assign_free_cores(1, range(5))  # who got too few keeps none
    leave(first)
    fourth = assign_free_cores(2, range(5))
    assert tuple(fourth) == (0, 1)
    leave(second, third, fourth)


def test_a_worker_that_was_placed_waits_for_the_one_before_it() -> None:
    assign = functools.partial(assign_free_cores, 1, [7])
    first = assign()
    threading.Timer(0.2, leave, [first]).start()
    leave(once_free(assign, patience_s=30.0))
    second = assign()
    with pytest.raises(NoneFreeError):
        once_free(assign, patience_s=0.0)
    leave(second)


@pytest.mark.parametrize("cores", ["free:", "free:0", "free:1000000", "free:x", "0,x"])
def test_what_is_no_number_of_cores_is_refused(cores: str) -> None:
    with pytest.raises(UsageError, match="--cores"):
        own_device(gpu=None, cpu=True, cores=cores)
