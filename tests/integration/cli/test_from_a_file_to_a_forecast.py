"""From a stranger's file to a forecast with its picture: four commands, no editor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import strangers_data
from tests.support.forked_cli import run


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (strangers_data.long_with_twenty_series, "2023-10-28"),
        (strangers_data.german, "2024-02-07 12:00:00"),
    ],
)
def test_four_commands_lead_to_forecasts_that_do_not_cross(
    made: Callable[[Path], Path], step: str, tmp_path: Path
) -> None:
    file = made(tmp_path)
    task = f"{file.stem}.toml"

    def tuner(*words: str) -> str:
        done = run(*words, folder=tmp_path, environment={"TMPDIR": str(tmp_path)})
        assert done.code == 0, done.err
        return done.out + done.err

    tuner("init", "data", file.name, "--yes")
    search = ["--cpu", "--trials", "2", "--max-epochs", "1", "--reruns", "0", "--sampler", "random"]
    said = tuner("launch", "--variant=rmsnorm", f"--task={task}", *search)
    assert "validation split" in said, "own data is searched on validation"
    assert "without a network: " in said
    assert "loses to a baseline, " in said, "these are random walks"
    trained = tuner(
        *("train", "--variant=rmsnorm", f"--task={task}", "--pick=mql", "--cpu"),
        *("--output=m.safetensors", "--calibrate"),
    )
    assert "validation windows; the same windows also stopped the training" in trained
    assert "this model loses to a baseline" in trained
    tuner("predict", "m.safetensors", task, "--plot=fan.html", "--output=forecast.csv")
    found = pd.read_csv(tmp_path / "forecast.csv")
    levels = [column for column in found.columns if column[0].isdigit()]
    assert (np.diff(found[levels].to_numpy(), axis=1) >= 0).all()
    rows = found.groupby(["column", found.columns[0]]).size()
    assert rows.min() == rows.max(), "all steps of each series and column"
    assert str(found.iloc[0, 1]) == step, "it follows the last row of the file"
    assert "plotly" in (tmp_path / "fan.html").read_text(encoding="utf-8").lower()
