"""Studies that people get wrong: one clear line with the remedy, and the database as it was."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import contents, refused
from tests.support.small_study import definition
from tuner.errors import UsageError
from tuner.launch.plan import check_study_name
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume

DEMO = ("launch", "--task", "demo", "--cpu")


LAUNCH = (*DEMO, "--variant", "rmsnorm")


def dump(folder: Path) -> str:
    with sqlite3.connect(f"file:{folder}/storage/tuner.db?mode=ro", uri=True) as connection:
        return "\n".join(connection.iterdump())


EXISTING: dict[str, tuple[Sequence[str], int, tuple[str, ...]]] = {
    "worker": (
        ("worker", "--study", "demo-rmsnrm", "--cpu"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "status": (
        ("status", "--study", "demo-rmsnrm"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "best": (
        ("best", "--variant", "rmsnorm", "--study", "demo-rmsnrm"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "bounds nobody meets": (
        (
            "best",
            "--variant",
            "rmsnorm",
            "--task",
            "demo",
            "--pick",
            "knee",
            "--max-time",
            "0.001",
            "--max-mql",
            "0.5",
        ),
        1,
        ("'demo-rmsnorm'", "wall_clock_s <= 0.001 and test_mql <= 0.5", "nearest is trial"),
    ),
    "another definition": (
        (*LAUNCH, "--max-epochs", "3"),
        2,
        ("'demo-rmsnorm'", "training.max_epochs: 200 there, 3 asked", "--study NAME"),
    ),
    "another device": (
        (*LAUNCH, "--trials", "100"),
        2,
        ("'demo-rmsnorm'", "Example CPU", "--study NAME"),
    ),
    "a wrong study file": ((*DEMO, "--variant", "rmsnorm,none.toml"), 2, ("none.toml",)),
    "a wrong task": (
        ("launch", "--cpu", "--variant", "simple", "--task", "none.toml"),
        2,
        ("none.toml",),
    ),
}


@pytest.mark.parametrize("command", ["status", "plot"])
def test_an_empty_name_is_no_study(command: str, copied: Path) -> None:
    arguments = {"status": ("status",), "plot": ("plot", "front", "--output", "front.html")}[
        command
    ]
    done = run(*arguments, "--study", "", folder=copied)
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("unknown study ''")


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("nohost.invalid", "--host takes"), ("192.0.2.1", "--host takes"), ("127.0.0.1", "--port")],
)
def test_an_address_that_cannot_be_listened_on_is_one_line(
    address: str, remedy: str, copied: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("dashboard", "--host", address, "--port", port, folder=copied)
    assert (done.code, done.out) == (1, "")
    assert f"cannot listen on {address}:{port}" in done.error
    assert remedy in done.error


def test_a_core_named_twice_is_one_core(copied: Path) -> None:
    core = str(min(os.sched_getaffinity(0)))
    done = run(
        "worker", "--study", "demo-rmsnorm", "--cpu", "--cores", f"{core},{core}", folder=copied
    )
    assert done.code == 2  # it would wait for itself for ever
    assert "1 core" in done.err
    assert "do not compare" in done.err


@pytest.mark.parametrize("mistake", EXISTING)
def test_a_mistake_leaves_an_existing_database_as_it_was(mistake: str, copied: Path) -> None:
    arguments, code, says = EXISTING[mistake]
    before, files = dump(copied), set(contents(copied))
    done = run(*arguments, folder=copied)
    assert done.code == code, done.err
    assert done.out == ""
    for words in says:
        assert words in done.error, done.error
    assert dump(copied) == before
    # The lock beside an SQLite file stays, as that of any launch does: to delete it would be a
    # race.
    assert set(contents(copied)) - files <= {"storage/tuner.db.lock"}


def test_a_study_of_another_version_is_one_line(copied: Path) -> None:
    path = copied / "storage" / "tuner.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE tuner_studies SET definition = json_remove(definition, '$.data_hash')"
        )
    connection.close()
    for arguments in (LAUNCH, ("best", "--variant", "rmsnorm", "--task", "demo"), ("status",)):
        done = run(*arguments, folder=copied)
        assert done.code == 1, done.err
        for words in ("'demo-rmsnorm'", "another version of tuner", "--study NAME"):
            assert words in done.error, done.error


def test_nothing_finished_yet_is_one_line(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db"))
    create_or_resume(database, "demo-rmsnorm", definition(), trials=10)
    database.close()
    done = run("best", "--variant", "rmsnorm", "--task", "demo", folder=tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert "'demo-rmsnorm' has no finished trial" in done.error
    assert "try again later" in done.error


def test_a_name_that_a_task_makes_too_long_is_one_line(tmp_path: Path) -> None:
    refused(
        *LAUNCH,
        "--study",
        "x" * 600,
        folder=tmp_path,
        code=2,
        says=("1 to 200 printable characters",),
    )
    with pytest.raises(
        UsageError, match=r"--task and --variant: .*; name it yourself: --study NAME"
    ):
        check_study_name("x" * 600, flag="--task and --variant", otherwise="--study")


@pytest.mark.parametrize("columns", ["0", "abc", "-5", "9" * 30, "\N{SUPERSCRIPT TWO}"])
def test_an_odd_number_of_columns_hinders_nothing(columns: str, copied: Path) -> None:
    for arguments in (("status",), ("--help",)):
        done = run(*arguments, folder=copied, environment={"COLUMNS": columns, "LINES": columns})
        assert (done.code, done.err) == (0, "")
