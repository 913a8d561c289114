"""`tuner init data`: a task file that prepares, written over none, or one line on what to do."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.support import strangers_data as strangers
from tests.support.forked_cli import given
from tests.support.forked_cli import run_here as run
from tests.support.refusals import contents, refused
from tuner.data.task import load_task


def test_it_writes_a_task_and_ends_with_the_next_commands(tmp_path: Path) -> None:
    strangers.headerless_daily(tmp_path)
    done = run("init", "data", "rates.csv", "--yes", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        (
            "wrote rates.toml; 8 targets, frequency D, 56 rows in, 14 out; windows: 4,483 train, "
            "1,449 val, 104 test"
        ),
        "next:",
        "  tuner data check rates.toml",
        "  tuner launch --variant original --task rates.toml",
    ]
    assert done.lines == [
        "tuner: a guess: time_column = none: no column holds times: the rows are counted",
        "tuner: a guess: frequency = D: nothing says how far apart two rows are",
        "tuner: read with header = False",
    ]
    assert load_task(str(tmp_path / "rates.toml")).name == "rates"
    assert sorted(contents(tmp_path)) == ["rates.csv", "rates.toml"]


def test_without_a_terminal_it_asks_nothing(tmp_path: Path) -> None:
    strangers.with_holidays_left_out(tmp_path)
    done = run("init", "data", "shares.csv", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.lines == ["tuner: a guess: gaps = skip: 11 rows are missing"]


def at_a_terminal(typed: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    try:
        return subprocess.run(
            [sys.executable, "-m", "tuner", "init", "data", "shares.csv"],
            cwd=folder,
            env=given(),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)


def test_on_a_terminal_it_asks_what_is_open(tmp_path: Path) -> None:
    strangers.with_holidays_left_out(tmp_path)
    done = at_a_terminal(b"what\nfill\n", tmp_path)
    assert done.returncode == 0, done.stderr
    asked = "11 rows are missing; gaps? [fill, skip, refuse] [skip]: "
    assert done.stdout.startswith(asked)
    assert "tuner: 'what' is none of them" in done.stderr
    text = (tmp_path / "shares.toml").read_text(encoding="utf-8")
    assert 'gaps = "fill"' in text
    assert "A guess" not in text


def test_who_leaves_a_question_leaves_no_file(tmp_path: Path) -> None:
    strangers.with_holidays_left_out(tmp_path)
    done = at_a_terminal(b"\x04", tmp_path)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "tuner: error: interrupted; nothing was written"
    assert [path.name for path in tmp_path.iterdir()] == ["shares.csv"]


def test_options_settle_what_is_open(tmp_path: Path) -> None:
    strangers.long_with_twenty_series(tmp_path)
    arguments = (
        *("--output", "mine.toml", "--horizon", "5", "--input-size", "9", "--targets", "sales"),
        *("--time-column", "day", "--id-column", "shop", "--frequency", "D", "--json"),
    )
    done = run("init", "data", "shops.csv", *arguments, folder=tmp_path)
    assert done.code == 0, done.err
    document = done.json()
    assert document["file"] == "mine.toml"
    assert document["guesses"] == []
    task = load_task(str(tmp_path / "mine.toml"))
    assert (task.horizon, task.input_size, task.target_columns) == (5, 9, ("sales",))
    assert len(document["series"]) == 20


def test_the_path_is_relative_to_the_task_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "tasks").mkdir()
    strangers.without_dates(tmp_path / "data")
    arguments = ("data/meter.csv", "--yes", "--output", "tasks/meter.toml")
    done = run("init", "data", *arguments, folder=tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "tasks" / "meter.toml").read_text(encoding="utf-8")
    assert 'path = "../data/meter.csv"' in text


def test_it_replaces_no_file_unless_told(tmp_path: Path) -> None:
    strangers.without_dates(tmp_path)
    (tmp_path / "meter.toml").write_text("mine", encoding="utf-8")
    refused(
        "init", "data", "meter.csv", "--yes", folder=tmp_path, code=2,
        says=("meter.toml: is there already", "--force"),
    )  # fmt: skip
    assert run("init", "data", "meter.csv", "--yes", "--force", folder=tmp_path).code == 0
    assert load_task(str(tmp_path / "meter.toml")).name == "meter"


def test_two_readings_are_shown_with_the_flag_that_decides(tmp_path: Path) -> None:
    days = [f"0{n}/0{n}/20{year}" for year in range(10, 30) for n in range(1, 10)]
    lines = ["date;v", *(f"{day};{k % 17},5" for k, day in enumerate(days))]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    refused(
        "init", "data", "x.csv", "--yes", folder=tmp_path, code=2,
        says=("%d/%m/%Y (row 2 '01/01/2010' is 2010-01-01", "%m/%d/%Y", "row 181", "--time-format"),
    )  # fmt: skip
    done = run("init", "data", "x.csv", "--yes", "--time-format", "%d/%m/%Y", folder=tmp_path)
    assert done.code == 0, done.err
    assert "tuner: read with separator = ';'; decimal = ','; time_format = '%d/%m/%Y'" in done.lines
