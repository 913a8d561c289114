"""`tuner bench` end to end: the demo task on one core, with darts and neuralforecast really
training."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import contents
from tests.support.small_study import STUDY_TOML, write_files

pytestmark = pytest.mark.usefixtures("one_core")


def test_a_bench_measures_everyone_and_writes_its_results(tmp_path: Path) -> None:
    locks = tmp_path / "tmp"
    locks.mkdir()
    sizes = ["--hidden", "16", "--batch", "64", "--rounds", "1", "--epochs", "2"]
    arguments = ["--task", "demo", "--cpu", "--variants", "original,rmsnorm", *sizes]
    arguments += ["--backends", "eager"]
    here = tmp_path / "here"
    here.mkdir()
    done = run(
        "bench",
        *arguments,
        "--output",
        "results",
        "--json",
        folder=here,
        environment={"TMPDIR": str(locks)},
    )
    assert done.code == 0, done.err
    assert all(line.startswith("tuner: ") for line in done.err.splitlines()), done.err
    assert set(contents(here)) == {"results", "results/results.csv", "results/results.md"}

    with (here / "results" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["darts", "neuralforecast", "tuner original eager", "tuner rmsnorm eager"]
    assert [row["contender"] for row in rows] == names
    assert [row["failure"] for row in rows] == [""] * 4
    assert {(row["n_windows"], row["n_steps"]) for row in rows} == {("422", "7")}
    assert rows[0]["n_parameters"] == rows[2]["n_parameters"]
    darts, steps, original = rows[:3]
    assert float(original["speedup_epoch"]) == pytest.approx(
        float(darts["s_per_epoch"]) / float(original["s_per_epoch"])
    )
    assert (steps["scope"], steps["speedup_epoch"]) == (
        "training steps only, without validation",
        "",
    )
    for row in rows:
        assert float(row["epochs48_s"]) == pytest.approx(48 * float(row["s_per_epoch"]))
        assert float(row["setup_cold_s"]) > 0
        assert (row["kernels_per_step"], row["gpu_utilisation"], row["peak_memory_bytes"]) == (
            "",
            "",
            "",
        )
        assert row["command"] == f"tuner bench {' '.join(arguments)} --output results --json"
        assert "darts 0.48" in row["versions"]

    document = json.loads(done.out)
    assert [row["contender"] for row in document["results"]] == names
    assert document["results"][0]["s_per_epoch"] == float(darts["s_per_epoch"])
    assert "| tuner rmsnorm eager |" in (here / "results" / "results.md").read_text(
        encoding="utf-8"
    )


def test_a_ladder_measures_and_trains_its_rungs(tmp_path: Path) -> None:
    study, _ = write_files(tmp_path)
    study.write_text(STUDY_TOML.replace("patience = 100000", "max_epochs = 2"))
    words = "--task tiny.toml --variants small.toml --cpu --rounds 1 --epochs 1 --train 2"
    done = run("bench", "--ladder", *words.split(), "--json", folder=tmp_path)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    rows = {(row["kind"], row["change"]): row for row in document["ladder"]}
    assert len(rows) == 13
    first, both = rows["cumulated", "as it was"], rows["cumulated", "+ bf16"]
    assert (first["speedup_epoch"], first["seeds"], both["seeds"]) == (1.0, 2, 2)
    assert both["speedup_epoch"] == pytest.approx(first["s_per_epoch"] / both["s_per_epoch"])
    assert both["test_mql_change"] == pytest.approx(both["test_mql"] - first["test_mql"])
    assert both["test_mql_low"] < both["test_mql"] < both["test_mql_high"]
    captured = rows["alone", "captured step"]
    assert captured["s_per_epoch"] is None
    assert captured["failure"].startswith("backend 'graph' needs a CUDA device")
    said = "left out: captured step (alone): backend 'graph' needs a CUDA device"
    assert said in done.err
    with (tmp_path / "storage" / "ladder" / "results.csv").open(newline="") as file:
        written = [(row["kind"], row["change"]) for row in csv.DictReader(file)]
    assert written == list(rows)
    # Not over the table of another kind of bench.
    there = ("--against", "none", "--output", "storage/ladder")
    again = run("bench", *words.split()[:-2], *there, folder=tmp_path)
    assert again.code == 2
    assert "results.csv" in again.err


def test_a_bench_without_a_figure_says_why_in_one_line(tmp_path: Path) -> None:
    job = (
        "--task",
        "demo",
        "--cpu",
        "--variants",
        "rmsnorm",
        "--against",
        "none",
        "--rounds",
        "1",
        "--epochs",
        "1",
    )
    done = run("bench", *job, "--hidden", str(10**12), folder=tmp_path)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("tuner: error: all contenders dropped out, the first because: ")
