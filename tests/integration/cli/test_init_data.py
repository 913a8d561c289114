"""`tuner init data`: a task file that prepares, written over none, or one line on what to do."""

from __future__ import annotations

import os
import pty
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import strangers_data as strangers
from tests.support.forked_cli import given, run
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
    ]
    assert load_task(str(tmp_path / "rates.toml")).name == "rates"
    assert sorted(contents(tmp_path)) == ["rates.csv", "rates.toml"]


def test_a_task_is_proposed_for_one_file_of_many(tmp_path: Path) -> None:
    says = "runs/*/series.csv names many files, and a task is proposed for one; name one of them"
    refused("init", "data", "runs/*/series.csv", folder=tmp_path, code=2, says=(says,))


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
    assert done.stdout.startswith(
        "11 rows are missing: fill them, skip them (rows count as consecutive), or refuse the "
        "file? [fill, skip, refuse] [skip]: "
    )
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


def empty(path: Path) -> None:
    path.write_bytes(b"\n \n")


def only_text(path: Path) -> None:
    path.write_text("mood\n" + "good\nbad\n" * 200, encoding="utf-8")


def too_few_rows(path: Path) -> None:
    path.write_text("ds,y\n2024-01-01,1\n2024-01-02,2\n2024-01-03,1\n", encoding="utf-8")


def repeated_times(path: Path) -> None:
    lines = [f"2024-01-{1 + i // 2:02d},{i * 7 % 11}" for i in range(60)]
    path.write_text("\n".join(["ds,y", *lines]), encoding="utf-8")


def undated(path: Path) -> None:
    path.write_text("y\n" + "".join(f"{i * 7 % 11}.5\n" for i in range(1000)), encoding="utf-8")


def regular(path: Path) -> None:
    lines = [f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{i * 7 % 11}" for i in range(600)]
    path.write_text("\n".join(["ds,y", *lines]), encoding="utf-8")


def picture(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(10_000_000))


def one_long_line(path: Path) -> None:
    path.write_bytes(b"ab12" * 2_500_000)


def folder(path: Path) -> None:
    path.mkdir()


def ragged(path: Path) -> None:
    path.write_text("a,b\n" + "1,2\n2,4\n" * 50 + "1,2,3\n", encoding="utf-8")


def short_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1" + bytes(40))


def nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (empty, ("the file is empty; a header row and data rows are expected",)),
        (only_text, ("has no column of numbers to forecast (mood: not numbers)",)),
        (too_few_rows, ("has 3 rows", "give more rows")),
        (repeated_times, ("row 3, column 'ds': duplicate timestamp", "set id_column")),
        (picture, ("is a PNG picture, whatever its name; give a CSV or a Parquet file",)),
        (garbage, ("holds bytes that no text has; give a CSV or a Parquet file",)),
        (one_long_line, ("cannot be cut into columns",)),
        (folder, ("is a folder; name a CSV or a Parquet file in it",)),
        (ragged, ("row 102: the row has 3 cells, the header has 2",)),
        (short_parquet, ("cannot be read as Parquet",)),
        (nothing, ("cannot be read (No such file or directory)",)),
    ],
)
def test_a_file_that_is_no_data_is_refused_in_a_line(
    tmp_path: Path, make: Callable[[Path], None], says: tuple[str, ...]
) -> None:
    make(tmp_path / "x.csv")
    for command in (("init", "data"), ("data", "check")):
        refused(*command, "x.csv", folder=tmp_path, code=1, says=("x.csv", *says))


def test_what_the_reader_of_the_task_refuses_is_not_written(tmp_path: Path) -> None:
    strangers.parquet(tmp_path)
    refused(
        "init", "data", "rows.parquet", "--horizon", "800", folder=tmp_path, code=1,
        says=("every split must hold a window", "a smaller input_size or horizon"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--targets", "nosuch"), 2, "unknown column of --targets 'nosuch'"),
        (("--targets", ","), 2, "--targets: names no column"),
        (("--targets", "weather"), 1, "column 'weather' of rows.parquet is not all numbers"),
        (("--time-column", "nosuch"), 1, "has no column 'nosuch'; there are"),
        (("--id-column", "nosuch"), 1, "has no column 'nosuch'; there are"),
        (("--frequency", "often"), 2, "--frequency: 'often' is no pandas frequency"),
        (("--output", "task.txt"), 2, "a task file is named .toml"),
        (("--output", "no/task.toml"), 2, "there is no folder no"),
    ],
)
def test_an_option_that_cannot_be_is_named(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    strangers.parquet(tmp_path)
    refused("init", "data", "rows.parquet", *arguments, folder=tmp_path, code=code, says=(says,))


@pytest.mark.parametrize(
    ("make", "arguments", "says"),
    [
        (repeated_times, (), "set id_column with '{}--id-column NAME'"),
        (
            undated,
            ("--frequency", "1000YS"),
            "set a shorter frequency with '{}--frequency min'",
        ),
        (
            regular,
            ("--horizon", "800"),
            "a smaller input_size or horizon with '{}--input-size N --horizon N'",
        ),
    ],
)
def test_what_the_reader_of_a_task_would_have_in_its_file_is_said_as_options(
    tmp_path: Path, make: Callable[[Path], None], arguments: tuple[str, ...], says: str
) -> None:
    make(tmp_path / "x.csv")
    said = refused(
        "init", "data", "x.csv", *arguments, folder=tmp_path, code=1, says=(says.format(""),)
    )
    assert "[source]" not in said
    assert "task file" not in said
    if not arguments:  # which 'data check' has not
        says = says.format("tuner init data x.csv ")
        refused("data", "check", "x.csv", folder=tmp_path, code=1, says=(says,))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--targets", "y,y"), "--targets: 'y' is named twice; name each column once"),
        (("--targets", "y,ds"), "--targets: 'ds' is named twice; name each column once"),
        (("--input-size", "1000001"), "'--input-size'"),
        (("--horizon", "1000001"), "'--horizon'"),
    ],
)
def test_an_option_is_refused_by_its_name_not_by_a_line_of_a_file_that_is_not_there(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    regular(tmp_path / "x.csv")
    said = refused("init", "data", "x.csv", *arguments, folder=tmp_path, code=2, says=(says,))
    assert "x.toml" not in said
