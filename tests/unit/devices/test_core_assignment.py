"""Cores that no other worker of this host has."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import pytest

from tuner.cli.device import own_device
from tuner.devices.assignment import NoneFreeError, assign_free_cores, once_free
from tuner.errors import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))


def test_no_two_workers_share_a_core_and_who_leaves_makes_room() -> None:
    first = assign_free_cores(2, range(5))
    second = assign_free_cores(2, range(5))
    assert (first.cores.cores, second.cores.cores) == ((0, 1), (2, 3))
    with pytest.raises(NoneFreeError, match="free:2: 1 of the 5 cores here have no worker"):
        assign_free_cores(2, range(5))
    third = assign_free_cores(1, range(5))  # who got too few keeps none
    first.leave()
    fourth = assign_free_cores(2, range(5))
    assert fourth.cores.cores == (0, 1)
    for each in (second, third, fourth):
        each.leave()


def test_a_worker_that_was_placed_waits_for_the_one_before_it() -> None:
    assign = functools.partial(assign_free_cores, 1, [7])
    first = assign()
    threading.Timer(0.2, first.leave).start()
    once_free(assign, patience_s=30.0).leave()
    second = assign()
    with pytest.raises(NoneFreeError):
        once_free(assign, patience_s=0.0)
    second.leave()


@pytest.mark.parametrize("cores", ["free:", "free:0", "free:1000000", "free:x", "0,x"])
def test_what_is_no_number_of_cores_is_refused(cores: str) -> None:
    with pytest.raises(UsageError, match="--cores"):
        own_device(gpu=None, cpu=True, cores=cores)
