"""The three Social-xLSTM variants on a generated road, from the task's files to a forecast."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from benchmarks.social_xlstm.generate import write
from tests.support.forked_cli import run
from tests.support.refusals import refused
from tuner import load_model
from tuner.models.names import HEADS, LOOP, SHARED, social_names
from tuner.spec.study_file import studies_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six detectors, a day and a half, with the files of its task; the three variants searched."""
    folder = tmp_path_factory.mktemp("road")
    write(folder, detectors=6, rows=420, input_size=12, horizon=4)
    _tuner(
        folder,
        "launch",
        f"--variant={','.join(social_names())}",
        "--task=traffic.toml",
        "--cpu",
        "--workers=1",
        "--trials=2",
        "--max-epochs=2",
        "--reruns=0",
        "--no-estimate",
    )
    return folder


def _tuner(folder: Path, *words: str) -> str:
    done = run(*words, folder=folder)
    assert done.code == 0, done.err
    return done.out


def test_a_study_of_each_has_values_and_says_whose_cell_ran(road: Path) -> None:
    for variant in social_names():
        study = f"--study=traffic-{variant}"
        trial = json.loads(_tuner(road, "trial", "0", study, "--json"))
        assert trial["attributes"]["cell"].startswith(("own: the package xlstm ", "xlstm "))
        assert trial["state"] == "complete"
    assert "xLSTM cell" in _tuner(road, "trial", "0", study)
    best = json.loads(_tuner(road, "best", study, "--pick=mql", "--format=json"))
    assert {"pool_radius", "pool_grid", "n_layers", "hidden_size"} <= best["params"].keys()


def test_a_trained_model_keeps_the_positions_and_forecasts_without_their_file(road: Path) -> None:
    study = f"--study=traffic-{HEADS}"
    _tuner(
        road,
        "train",
        study,
        "--pick=mql",
        "--task=traffic.toml",
        "--cpu",
        "--output=model.safetensors",
    )
    forecast = _tuner(road, "predict", "model.safetensors", "traffic.toml", "--json")
    assert len(json.loads(forecast)["forecasts"]) > 0
    saved = load_model(road / "model.safetensors")
    assert len(saved.task.positions) == 6
    assert saved.model.cells.shape[0] == 6  # type: ignore[index]


def test_without_positions_a_launch_is_refused_before_anything_is_written(road: Path) -> None:
    said = refused(
        "launch",
        f"--variant={LOOP}",
        "--task=demo",
        "--cpu",
        folder=road,
        code=2,
        says=('add positions = "positions.csv" to the task file', "pooling = 'none'"),
    )
    assert said.count("\n") <= 1


def test_without_pooling_a_study_needs_no_positions(road: Path) -> None:
    text = (studies_folder() / f"{SHARED}.toml").read_text()
    for line in ("pool_radius = 2.0\n", "pool_grid = 4\n"):
        text = text.replace(line, "")
    text = text.replace('pooling = "social"', 'pooling = "none"')
    kept = [part for part in text.split("\n[") if not part.startswith("space.pool_")]
    (road / "alone.toml").write_text("\n[".join(kept))
    assert tomllib.loads((road / "alone.toml").read_text())["model_settings"]["pooling"] == "none"
    assert "works" in _tuner(road, "variants", "--check=alone.toml", "--task=demo")


def test_check_says_over_how_many_others_a_detector_pools(road: Path) -> None:
    done = run("variants", f"--check={SHARED}", "--task=traffic.toml", folder=road)
    assert (done.code, "works" in done.out) == (0, True), done.err
    assert "a detector pools over 1 to " in done.err
    refused(
        "variants",
        f"--check={SHARED}",
        "--task=demo",
        folder=road,
        code=2,
        says=('add positions = "positions.csv" to the task file',),
    )


def test_a_form_that_it_does_not_have_is_refused_in_a_line(road: Path) -> None:
    form = "python"
    refused(
        "best",
        f"--study=traffic-{SHARED}",
        "--pick=mql",
        f"--format={form}",
        folder=road,
        code=2,
        says=(f"--format {form} has no Social-xLSTM yet", "tuner train"),
    )


def test_another_file_of_positions_is_another_study(road: Path) -> None:
    file = road / "positions.csv"
    there = file.read_text()
    file.write_text(there.replace("d001,", "d001,1"))
    try:
        refused(
            "launch",
            f"--variant={SHARED}",
            "--task=traffic.toml",
            "--cpu",
            "--trials=3",
            folder=road,
            code=2,
            says=(f"traffic-{SHARED}", "positions"),
        )
    finally:
        file.write_text(there)
