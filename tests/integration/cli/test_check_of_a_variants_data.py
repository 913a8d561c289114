"""`tuner variants --check` says of data what a launch would say of it."""

from __future__ import annotations

from pathlib import Path

from tests.support.forked_cli import run_here as run
from tests.support.small_study import STUDY_TOML

TASK = """
name = "mine"
target_columns = ["load"]
frequency = "h"
input_size = 24
horizon = {horizon}
calendar = ["hour"]

[source]
kind = "csv"
path = "mine.csv"
time_column = "time"
"""

ROWS = [
    f"2024-01-{1 + hour // 24:02d}T{hour % 24:02d}:00:00,{hour % 24}.5" for hour in range(24 * 20)
]
HEADER = "time,load"

Lines = list[str]


def write(folder: Path, lines: Lines | None, *, horizon: int = 6) -> None:
    (folder / "mine.toml").write_text(TASK.format(horizon=horizon), encoding="utf-8")
    (folder / "small.toml").write_text(STUDY_TOML, encoding="utf-8")
    if lines is not None:
        (folder / "mine.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_sound_data_is_prepared_and_trained_on_for_a_step(tmp_path: Path) -> None:
    write(tmp_path, [HEADER, *ROWS])
    done = run("variants", "--check", "small.toml", "--task", "mine.toml", folder=tmp_path)
    assert done.code == 0, done.err
    assert "small: rmsnorm works, " in done.out
    assert "checked: the data (1 series; windows: " in done.out
    assert "one training step on 32 of them: forward, loss " in done.out
