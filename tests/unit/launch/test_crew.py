"""The time that a crew has: it begins with the request, whatever comes before the work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tuner.launch.crew import Crew, deadline
from tuner.launch.launcher import LEAST_TIMEOUT_S, worth_measuring


def left_s(until: float | None) -> float | None:
    return Crew(devices=[], task=None, data_dir=Path(), deadline=until)._left_s()


def test_without_a_limit_there_is_no_deadline() -> None:
    assert deadline(None) is None
    assert left_s(None) is None


def test_each_piece_of_work_has_what_those_before_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification in rounds is one request: its second round has no minute of its own."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    until = deadline(60.0)
    assert left_s(until) == 60.0
    now += 45.0
    assert left_s(until) == 15.0
    now += 45.0
    assert left_s(until) == 0.0


def test_a_short_launch_measures_nothing() -> None:
    assert worth_measuring(None)
    assert worth_measuring(LEAST_TIMEOUT_S)
    assert not worth_measuring(LEAST_TIMEOUT_S - 1)
