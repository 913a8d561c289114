"""`tuner data check`: what is said of data, of a task and of a bare file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import strangers_data as strangers
from tests.support.forked_cli import run
from tests.support.small_csv import TASK, csv_lines
from tuner.cli import main
from tuner.devices.watch import Observation, Watch


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A task with a gap of two rows, an empty cell, a constant column and a large one."""
    lines = [f"{line},7,{i * i % 97}00" for i, line in enumerate(csv_lines(80))]
    lines[0] = "ds,a,b,c,d"
    lines[5] = lines[5].replace(",4.5,", ",,")
    del lines[20:22]
    (tmp_path / "small.csv").write_text("\n".join(lines), encoding="utf-8")
    text = TASK.replace('["a", "b"]', '["a", "b", "c", "d"]') + 'gaps = "fill"\n'
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_task_is_described(small: Path) -> None:
    done = run("data", "check", "small.toml", folder=small)
    assert done.code == 0, done.err
    assert done.out.splitlines()[:5] == [
        "small: 80 rows, frequency h, 1 series",
        "  small: 80 rows, 2024-01-01 to 2024-01-04 07:00:00",
        "made up: 2 missing rows and 1 empty cells",
        "windows of 6 rows in and 2 out: 41 train, 9 val, 5 test",
        "constant in the training rows: c",
    ]
    assert "  0.0%  c" in done.out
    assert "2 of them hardly count: MQL is in the columns' own units" in done.out
    assert "an epoch of original at its defaults: about " in done.out


def test_a_pace_that_others_disturbed_is_told_as_such(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "others used 70% of these cores' time"
    seen = Observation(contaminated=True, why=why)
    monkeypatch.setattr(Watch, "finish", lambda _watch: seen)
    monkeypatch.chdir(small)
    with pytest.raises(SystemExit):
        main(["data", "check", "small.toml"])
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"; it may be much less: {why}")


def test_json_holds_the_same(small: Path) -> None:
    done = run("data", "check", "small.toml", "--json", folder=small)
    document = done.json()
    assert document["windows"] == {"train": 41, "val": 9, "test": 5}
    assert document["constant"] == ["c"]
    assert sum(document["shares"].values()) == pytest.approx(1)
    assert document["shares"]["d"] > 0.99
    (series,) = document["series"]
    assert (series["rows"], series["filled_rows"], series["filled_cells"]) == (80, 2, 1)
    assert document["epoch"]["about_s"] > 0
    assert document["epoch"]["steps"] == 1


def test_a_bare_file_is_checked_as_the_task_that_would_be_proposed(tmp_path: Path) -> None:
    strangers.with_holidays_left_out(tmp_path)
    done = run("data", "check", "shares.csv", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.out.startswith("shares: 888 rows, frequency B, 1 series")
    assert "rows count as consecutive, whatever lies between them" in done.out
    assert done.lines == ["tuner: a guess: gaps = skip: 11 rows are missing"]
    assert [path.name for path in tmp_path.iterdir()] == ["shares.csv"]


def test_a_built_in_task_is_described(tmp_path: Path) -> None:
    done = run("data", "check", "demo", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.out.startswith("demo: 800 rows, frequency h, 2 series")


def test_a_launch_says_what_was_made_up(small: Path) -> None:
    arguments = ("--variant", "original", "--task", "small.toml", "--cpu", "--trials", "1")
    done = run(
        "launch", *arguments, "--max-epochs", "1",
        folder=small, environment={"TMPDIR": str(small)},
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "tuner: task small: 2 missing rows and 1 empty cells were filled (forward)" in done.err
