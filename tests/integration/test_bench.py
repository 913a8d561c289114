"""`tuner bench` end to end: the demo task on one core, with darts and neuralforecast really training."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from command_line import contents, refused, run

pytestmark = pytest.mark.usefixtures("one_core")


def test_a_bench_measures_everyone_and_writes_its_results(tmp_path: Path) -> None:
    locks = tmp_path / "tmp"
    locks.mkdir()
    sizes = ["--hidden", "16", "--batch", "64", "--rounds", "1", "--epochs", "2"]
    arguments = ["--task", "demo", "--cpu", "--variants", "original,rmsnorm", *sizes]
    here = tmp_path / "here"
    here.mkdir()
    done = run("bench", *arguments, "--output", "results", "--json", folder=here, environment={"TMPDIR": str(locks)})
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
    darts, steps, original, _ = rows
    assert float(original["speedup_epoch"]) == pytest.approx(
        float(darts["s_per_epoch"]) / float(original["s_per_epoch"])
    )
    assert (steps["scope"], steps["speedup_epoch"]) == ("training steps only, without validation", "")
    for row in rows:
        assert float(row["epochs48_s"]) == pytest.approx(48 * float(row["s_per_epoch"]))
        assert float(row["setup_cold_s"]) > 0
        assert (row["kernels_per_step"], row["gpu_utilisation"], row["peak_memory_bytes"]) == ("", "", "")
        assert row["command"] == f"tuner bench {' '.join(arguments)} --output results --json"
        assert "darts 0.48" in row["versions"]

    document = json.loads(done.out)
    assert [row["contender"] for row in document["results"]] == names
    assert document["results"][0]["s_per_epoch"] == float(darts["s_per_epoch"])
    assert "| tuner rmsnorm eager |" in (here / "results" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--cpu", "--gpu", "0"), ("--cpu and --gpu exclude each other",)),
        (("--cpu", "--hidden", "64,big"), ("--hidden", "'64,big'", "64,128")),
        (("--cpu", "--backends", "graph"), ("--backends", "graph needs a CUDA device")),
        (("--cpu", "--against", "gluonts"), ("unknown library 'gluonts'", "darts, neuralforecast")),
        (("--cpu", "--rounds", "0"), ("--rounds",)),
    ],
    ids=" ".join,
)
def test_misuse_is_one_line_and_writes_nothing(
    arguments: tuple[str, ...], says: tuple[str, ...], tmp_path: Path
) -> None:
    refused("bench", "--task", "demo", *arguments, folder=tmp_path, code=2, says=says)


def test_a_bench_without_a_figure_says_why_in_one_line(tmp_path: Path) -> None:
    job = ("--task", "demo", "--cpu", "--variants", "rmsnorm", "--against", "none", "--rounds", "1", "--epochs", "1")
    done = run("bench", *job, "--hidden", str(10**12), folder=tmp_path)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("tuner: error: all contenders dropped out, the first because: ")
