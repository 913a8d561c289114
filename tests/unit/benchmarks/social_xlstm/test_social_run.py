"""The generated road, and the dry run of what is measured on it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.social_xlstm import generate
from tuner.models.names import social_names


@pytest.fixture
def script() -> Any:
    return importlib.import_module("benchmarks.social_xlstm.run")


def test_the_same_seed_writes_the_same_bytes_and_another_one_others(tmp_path: Path) -> None:
    files = ("traffic.csv", "positions.csv", "traffic.toml")
    folders = [tmp_path / name for name in ("first", "again", "other")]
    for folder, seed in zip(folders, (0, 0, 1), strict=True):
        generate.write(folder, detectors=4, rows=50, seed=seed)
    first, again, other = ([(folder / name).read_bytes() for name in files] for folder in folders)
    assert first == again
    assert first[:2] != other[:2]


def test_jams_travel_upstream() -> None:
    """What a detector sees, the next one upstream sees a step later; its downstream one, not."""
    values = generate.speeds(12, 4000, np.random.Generator(np.random.PCG64(0)))
    changes = np.diff(values, axis=0)
    upstream = np.corrcoef(changes[:-1, 1:].ravel(), changes[1:, :-1].ravel())[0, 1]
    downstream = np.corrcoef(changes[:-1, :-1].ravel(), changes[1:, 1:].ravel())[0, 1]
    assert upstream > 0.3
    assert abs(downstream) < 0.1


def test_a_dry_run_leaves_its_files_with_every_variant(script: Any, tmp_path: Path) -> None:
    script.main(["--quick", "--no-retune", "--output", str(tmp_path / "road")])
    document = json.loads((tmp_path / "road.json").read_text())
    assert [row["variant"] for row in document["variants"]] == list(social_names())
    text = (tmp_path / "road.md").read_text()
    for row in document["variants"]:
        assert row["step"]["ms"] > 0
        assert row["trial"]["epochs"] > 0
        assert f"| {row['variant']} | eager |" in text


def test_a_variant_that_fails_says_so_and_the_others_go_on(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(variant: str, *_rest: object) -> dict[str, float]:
        if variant == social_names()[1]:
            raise RuntimeError("no such kernel\nmore")
        return {"ms": 1.0, "setup_s": 0.1, "steps_in_epoch": 3}

    its: dict[str, Any] = dict.fromkeys(("gpu_busy", "test_mql_mean", "peak_memory_bytes"))
    its |= {"epochs": 3, "stopped_by": "converged", "n_parameters": 10, "cell": "own"}
    its |= {"baseline_test_mql": {"last_value": 1.5}}
    monkeypatch.setattr(script, "step_ms", failing)
    monkeypatch.setattr(script, "trial", lambda *_given: its)
    rows = script.measured(None, None, None, {script.Backend.EAGER: 1.0})
    lines = script.table(rows)
    assert lines[0] == "Without a network, test MQL: last_value 1.500."
    ours = lines[-len(rows) :]
    assert "RuntimeError: no such kernel" in ours[1]
    assert "| 1.00 | 3 |" in ours[0]
    assert "| 1.00 | 3 |" in ours[2]
