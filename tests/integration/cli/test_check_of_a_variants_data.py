"""`tuner variants --check` says of data what a launch would say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import refused
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


def _changed(number: int, line: str) -> Lines:
    return [HEADER, *ROWS[:number], line, *ROWS[number + 1 :]]


BROKEN: dict[str, Callable[[], Lines | None]] = {
    "missing": lambda: None,
    "empty": list,
    "headerless": lambda: ROWS,
    "wrong column": lambda: ["time,lode", *ROWS],
    "not available": lambda: _changed(40, "2024-01-02T16:00:00,NA"),
    "no number": lambda: _changed(40, "2024-01-02T16:00:00,much"),
    "gap": lambda: [HEADER, *ROWS[:40], *ROWS[43:]],
    "duplicate": lambda: [HEADER, *ROWS[:40], ROWS[39], *ROWS[40:]],
    "wrong frequency": lambda: [HEADER, *ROWS[::2]],
    "no time": lambda: _changed(40, "yesterday,1.0"),
    "too short": lambda: [HEADER, *ROWS[:30]],
}


def write(folder: Path, lines: Lines | None, *, horizon: int = 6) -> None:
    (folder / "mine.toml").write_text(TASK.format(horizon=horizon), encoding="utf-8")
    (folder / "small.toml").write_text(STUDY_TOML, encoding="utf-8")
    if lines is not None:
        (folder / "mine.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def both(folder: Path, code: int) -> Iterator[str]:
    for command in (
        ("variants", "--check", "small.toml", "--task", "mine.toml"),
        ("launch", "--variant", "small.toml", "--task", "mine.toml", "--cpu"),
    ):
        yield refused(*command, folder=folder, code=code, says=())


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_data_is_what_a_launch_says_of_it(fault: str, tmp_path: Path) -> None:
    write(tmp_path, BROKEN[fault]())
    checked, launched = both(tmp_path, 1)
    assert checked == launched
    assert "mine.csv" in checked


def test_a_horizon_beyond_the_data_is_what_a_launch_says_of_it(tmp_path: Path) -> None:
    write(tmp_path, [HEADER, *ROWS], horizon=7000)
    checked, launched = both(tmp_path, 1)
    assert checked == launched
    assert "horizon 7000" in checked


def test_a_folder_without_the_reference_data_is_what_a_launch_says_of_it(tmp_path: Path) -> None:
    where = ("--task", "etth", "--data-dir", str(tmp_path))
    checked = refused(
        "variants", "--check", "rmsnorm", *where, folder=tmp_path, code=1, says=("ETTh1.csv",)
    )
    assert checked == refused(
        "launch", "--variant", "rmsnorm", "--cpu", *where, folder=tmp_path, code=1, says=()
    )


def test_sound_data_is_prepared_and_trained_on_for_a_step(tmp_path: Path) -> None:
    write(tmp_path, [HEADER, *ROWS])
    done = run("variants", "--check", "small.toml", "--task", "mine.toml", folder=tmp_path)
    assert done.code == 0, done.err
    assert "small: rmsnorm works, " in done.out
    assert "checked: the data (1 series; windows: " in done.out
    assert "one training step on 32 of them: forward, loss " in done.out
