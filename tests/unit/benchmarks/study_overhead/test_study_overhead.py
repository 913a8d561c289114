"""A study's overhead as its trials' records tell it: every second is in one part, and memory must
not grow."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support import forked_cli
from tests.support.paths import BENCHMARKS
from tuner.record import Recorded
from tuner.study.archive import read_archive
from tuner.study.results import TrialRecord


@pytest.fixture(scope="module")
def overhead() -> Any:
    return importlib.import_module("benchmarks.study_overhead.study_overhead")


def trial(number: int, *, held: int = 100, **more: Any) -> TrialRecord:
    """A cycle of 2.0 s: 1.5 of training, 0.1 asked, 0.2 set-up, 0.05 evaluation, 0.02 between
    epochs, 0.03 turnover."""
    attributes = {
        "stopped_by": "epoch_limit",
        "wall_clock_s": 1.5,
        "suggest_s": 0.1,
        "setup_s": 0.2,
        "evaluation_s": 0.05,
        "total_s": 1.77,
        "turnover_s": 0.03,
        "wait_s": 0.0,
        "cycle_s": 2.0,
        "allocated_memory_bytes": held,
        "reserved_memory_bytes": 1000,
    }
    kept = {key: value for key, value in (attributes | more).items() if value is not None}
    return TrialRecord(
        number, TrialState.COMPLETE, {}, (1.0, 1.0), Recorded.from_flat(kept), None, None
    )


def test_every_second_of_a_cycle_is_in_one_part(overhead: Any) -> None:
    records = [
        trial(0, cycle_s=None, turnover_s=None),
        *(trial(n) for n in range(1, 10)),
        trial(10, timings=[{}, {}]),
    ]
    found = overhead.analyse(records)
    # Neither a worker's first trial counts, nor one that was run twice.
    assert (found["trials"], found["counted"]) == (11, 9)
    parts = {part: figures["median"] for part, figures in found["parts"].items()}
    assert sum(parts.values()) == pytest.approx(found["cycle_s"]["median"])
    assert parts["between epochs"] == pytest.approx(0.02)
    assert parts["looking at the device, records"] == pytest.approx(0.1)
    assert found["overhead_s"]["median"] == pytest.approx(0.4)
    assert found["trials_per_hour"] == pytest.approx(1800)
    assert not found["target_met"]
    assert (
        overhead.analyse([trial(0), trial(1, setup_s=0.01, total_s=1.58, cycle_s=1.75)])[
            "overhead_s"
        ]["max"]
        > 0.25
    )


def test_memory_is_compared_after_the_tenth_and_after_the_last() -> None:
    analysis = importlib.import_module("benchmarks.study_overhead.analysis")
    steady = analysis.memory([trial(n, held=5 if n < 10 else 7).recorded for n in range(30)])
    assert steady["equal"]
    assert steady["after"] == [10, 29]
    assert not analysis.memory([trial(n, held=n).recorded for n in range(30)])["equal"]
    assert analysis.memory([Recorded()]) is None


def test_an_exported_study_is_analysed_without_a_device(overhead: Any, tmp_path: Path) -> None:
    recorded = BENCHMARKS / "campaign" / "etth-rmsnorm.json.gz"
    overhead.main(["--study", str(recorded), "--output", str(tmp_path / "again")])
    found = json.loads((tmp_path / "again.json").read_text())
    assert found["trials"] == 200
    assert found["counted"] == 200
    assert 1000 < found["trials_per_hour"] < 10000
    assert found["validation_share"] is None
    assert (found["sampler"], found["prune"]) == ("tpe", True)
    (revision,) = found["ran"]["revisions"]
    assert revision.startswith("dd1c3e9")
    assert found["front"] == sorted(found["front"], key=lambda point: (point[0], -point[1]))
    (said,) = [
        line
        for line in (tmp_path / "again.md").read_text().splitlines()
        if line.startswith("Its trials ran")
    ]
    assert found["ran"]["between"][0] in said
    assert "torch 2.11.0+cu130" in said
    assert read_archive(tmp_path / "again.study.json.gz").curves == {}


def test_what_grows_with_a_study_shows_in_its_last_tenth(overhead: Any) -> None:
    found = overhead.analyse([trial(n, suggest_s=0.1 + 0.01 * n, cycle_s=3.0) for n in range(20)])
    suggesting = found["parts"]["suggesting"]
    assert (suggesting["first_tenth"], suggesting["last_tenth"]) == pytest.approx((0.105, 0.285))


@pytest.mark.usefixtures("one_core")
def test_a_dry_run_leaves_its_files(
    overhead: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())
    overhead.main(["--quick", "--output", str(tmp_path / "out" / "study-1.2")])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "study-1.2.json",
        "study-1.2.md",
        "study-1.2.study.json.gz",
    ]
    found = json.loads((tmp_path / "out" / "study-1.2.json").read_text())
    assert (found["trials"], found["counted"]) == (4, 3)
    assert 0 < found["validation_share"] < 1
    assert found["device"]
    shares = sum(part["share"] for part in found["parts"].values())
    assert shares == pytest.approx(1.0)
    assert all(part["median"] >= 0 for part in found["parts"].values())
    assert (
        "all but training, validation and suggesting"
        in (tmp_path / "out" / "study-1.2.md").read_text()
    )
