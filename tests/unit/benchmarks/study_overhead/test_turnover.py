"""A worker between two trainings, measured on an exported study without training anything."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from tests.support.paths import BENCHMARKS


@pytest.fixture
def turnover() -> ModuleType:
    return importlib.import_module("benchmarks.study_overhead.turnover")


def test_trials_go_on_after_the_beginning_of_an_exported_study(turnover: ModuleType) -> None:
    archive = turnover.read_archive(BENCHMARKS / "campaign" / "etth-original.json.gz")
    found = turnover.measure(archive, 50, 6)
    assert (found["length"], found["trials"]) == (50, 5)
    assert found["turnover"] > 0
    assert found["suggest"] > 0


def test_a_replayed_curve_is_as_long_and_ends_as_low_as_the_recorded_one(
    turnover: ModuleType,
) -> None:
    archive = turnover.read_archive(BENCHMARKS / "campaign" / "etth-original.json.gz")
    record = next(record for record in archive.records if record.values)
    curve = turnover.curve_of(record)
    assert len(curve) == record.recorded.epochs
    assert curve[-1].val_loss == pytest.approx(record.recorded.val_loss)
    assert curve[-1].elapsed_s == pytest.approx(record.recorded.wall_clock_s)
