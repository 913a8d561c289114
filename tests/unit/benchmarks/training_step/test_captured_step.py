"""Steps of backends beside one another: the dry run, and one that fails."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def script() -> Any:
    return importlib.import_module("benchmarks.training_step.captured_step")


def test_a_dry_run_leaves_its_files_and_the_same_bits(script: Any, tmp_path: Path) -> None:
    script.main(["--quick", "--output", str(tmp_path / "step")])
    found = json.loads((tmp_path / "step.json").read_text())
    assert found["steps"]["eager again"]["same_bits"]
    assert "| eager again |" in (tmp_path / "step.md").read_text()


def test_on_a_gpu_captured_fp32_is_what_the_others_are_held_against(script: Any) -> None:
    entered = script.contenders(cuda=True)
    assert next(iter(entered)) == "graph fp32"
    assert len(set(entered.values())) == len(entered) == 6


def test_a_contender_that_fails_says_so_and_the_others_go_on(script: Any) -> None:
    class Turn:
        losses = (1.0, 2.0)
        setup_s = 0.5

        def __init__(self, *, fails: bool) -> None:
            self.fails = fails
            self.steps_us: list[float] = []
            self.epochs_s: list[float] = []

        def run(self, epochs: int, *, count: bool) -> None:
            if self.fails:
                raise RuntimeError("no such kernel\nmore")
            if count:
                self.steps_us += [10.0] * epochs
                self.epochs_s += [1.0] * epochs

    found = script.measure({"graph": Turn(fails=False), "new": Turn(fails=True)}, 2, 3)
    assert found["new"] == {"failure": "RuntimeError: no such kernel"}
    assert found["graph"]["us_per_step"] == 10.0
    assert "| new | RuntimeError: no such kernel |" in "\n".join(script.table(found))
