from __future__ import annotations

import pytest
import torch

from tuner.training.clock import Clock, seeded


class Times:
    """A time that moves only when told to, and a device whose pending work takes time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pending = 0.0

    def synchronize(self) -> None:
        self.now += self.pending
        self.pending = 0.0


def test_the_clock_counts_from_start_to_stop_and_not_in_pauses() -> None:
    times = Times()
    clock = Clock(times.synchronize, lambda: times.now)
    times.now += 5
    assert clock.elapsed() == 0
    clock.start()
    times.now += 3
    with clock.paused():
        times.now += 10
        assert clock.elapsed() == 3
    times.now += 2
    assert clock.elapsed() == 5
    assert clock.stop() == 5
    times.now += 7
    assert clock.stop() == 5


def test_work_queued_on_the_device_is_counted_on_the_side_of_the_clock_it_belongs_to() -> None:
    times = Times()
    clock = Clock(times.synchronize, lambda: times.now)
    times.pending = 4  # set-up still running
    clock.start()
    assert clock.elapsed() == 0
    times.pending = 2  # training queued before the pause
    with clock.paused():
        assert clock.elapsed() == 2
        times.pending = 8  # queued by the callback
    assert clock.elapsed() == 2
    times.pending = 1
    assert clock.stop() == 3


def test_a_pause_that_fails_leaves_the_clock_running() -> None:
    times = Times()
    clock = Clock(times.synchronize, lambda: times.now)
    clock.start()
    with pytest.raises(KeyError), clock.paused():
        raise KeyError
    times.now += 1
    assert clock.elapsed() == 1


def test_who_listens_to_the_clock_is_told_off_it() -> None:
    times, told = Times(), []

    def listen(runs: bool) -> None:
        told.append((runs, times.now))
        times.now += 100

    clock = Clock(times.synchronize, lambda: times.now, listen)
    times.pending = 4
    clock.start()
    times.now += 1
    times.pending = 2
    assert clock.stop() == 3
    clock.stop()  # it stands already
    assert told == [(True, 104.0), (False, 207.0)]
    with clock.paused():
        assert clock.elapsed() == 3
    assert [runs for runs, _ in told] == [True, False, True]


def test_shuffles_have_random_numbers_of_their_own() -> None:
    """Not those that drew the initial weights, which the seed itself would give again."""
    cpu = torch.device("cpu")
    weights = torch.rand(64, generator=torch.Generator().manual_seed(7))
    with seeded(7, cpu) as shuffles:
        found = torch.rand(64, generator=shuffles)
    assert not torch.equal(found, weights)
    with seeded(7, cpu) as again:
        assert torch.equal(torch.rand(64, generator=again), found)
