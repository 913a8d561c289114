"""Whole trainings by setting: they take turns, and an earlier run's are kept."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tuner.config import Backend


@pytest.fixture(scope="module")
def convergence() -> Any:
    return importlib.import_module("benchmarks.training_settings.convergence")


def test_each_setting_is_one_change(convergence: Any) -> None:
    plain = convergence.configuration("fp32", 3, Backend.GRAPH)
    for name in convergence.SETTINGS:
        config = convergence.configuration(name, 3, Backend.GRAPH)
        assert (config == plain) == (name == "fp32")
        effective = config.accumulate * config.hyperparameters.batch_size
        assert effective == plain.hyperparameters.batch_size, "the same windows an update"


def test_a_dry_run_trains_what_is_missing_and_compares(convergence: Any, tmp_path: Path) -> None:
    output = tmp_path / "out" / "settings"
    said = ["--quick", "--output", str(output), "--settings"]
    convergence.main([*said, "fp32"])
    first = Path(f"{output}.runs.jsonl").read_text()
    convergence.main([*said, "fp32,fp16,validate every 5"])
    lines = Path(f"{output}.runs.jsonl").read_text()
    assert lines.startswith(first)
    runs = [json.loads(line) for line in lines.splitlines()]
    assert [(run["backend"], run["seed"]) for run in runs] == [
        ("fp32", 0),
        ("fp32", 1),
        ("fp16", 0),
        ("validate every 5", 0),
        ("fp16", 1),
        ("validate every 5", 1),
    ]
    found = json.loads(Path(f"{output}.json").read_text())
    assert found["settings"]["fp16"]["difference"]["val_loss"]["low"] < 0.1
    assert "| setting |" in Path(f"{output}.md").read_text()
    # The last epoch is validated all the same.
    assert {run["best_epoch"] for run in runs if run["backend"] == "validate every 5"} == {2}
