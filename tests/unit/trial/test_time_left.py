"""The time that a job may take: what it waits for its device is none of it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tuner.trial.job import TimeLeft


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("tuner.trial.job.time.perf_counter", lambda: now[0])
    return now


def test_a_wait_takes_nothing_of_it_neither_while_it_lasts_nor_after(clock: list[float]) -> None:
    told: list[bool] = []
    left = TimeLeft(10.0, told.append, _began=clock[0])
    clock[0] += 4.0
    with left.waiting():
        clock[0] += 50.0
        assert (left.seconds, left.is_over, told) == (6.0, False, [True])
    clock[0] += 5.0
    assert (left.seconds, left.is_over) == (1.0, False)

    def fails() -> None:
        clock[0] += 50.0
        raise ValueError("no lock")

    with suppress(ValueError), left.waiting():
        fails()
    assert told == [True, False, True, False]
    clock[0] += 1.0
    assert (left.seconds, left.is_over) == (0.0, True)


def test_without_a_limit_it_is_never_over(clock: list[float]) -> None:
    left = TimeLeft()
    clock[0] += 1e9
    assert (left.seconds, left.is_over) == (None, False)
