"""The time that a crew has: it begins with the request, whatever comes before the work. And its
devices, so many together as a trial takes.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.small_study import definition
from tuner.config import TrainingSettings
from tuner.devices import CpuCores, Gpu
from tuner.launch import Outcome, StopRequests, crew
from tuner.launch.crew import Crew, deadline
from tuner.launch.launcher import LEAST_TIMEOUT_S, worth_measuring
from tuner.launch.request import Quiet
from tuner.storage.url import absolute, parse_url


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


def test_devices_are_together_as_a_trial_takes_them_and_who_stays_idle_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised: list[Gpu | CpuCores] = []

    def supervisor(**given: Any) -> Any:
        supervised.extend(given["devices"])
        return SimpleNamespace(run=lambda _tick, timeout_s: Outcome.FILLED)

    monkeypatch.setattr(crew, "Supervisor", supervisor)
    study: Any = SimpleNamespace(
        name="small",
        definition=definition(training=TrainingSettings(gpus_per_trial=2)),
        database=SimpleNamespace(address=absolute(parse_url(f"sqlite:///{tmp_path}/tuner.db"))),
        ledger=None,
    )
    cores = [CpuCores((core,)) for core in range(3)]
    said: list[str] = []
    mine = Crew(devices=cores, task=None, data_dir=None, deadline=None)
    assert mine.work([study], Quiet(said.append), StopRequests()) is Outcome.FILLED
    assert supervised == [CpuCores((0, 1), parts=2)]
    assert said == ["1 of 3 devices stay idle: a trial takes 2 at a time"]
