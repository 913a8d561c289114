"""Studies that people get wrong: one clear line with the remedy, and the database as it was."""

from __future__ import annotations

import os
import socket
import sqlite3
from pathlib import Path

import pytest

from tests.support.forked_cli import run_here as run

DEMO = ("launch", "--task", "demo", "--cpu")


LAUNCH = (*DEMO, "--variant", "rmsnorm")


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("192.0.2.1", "--host takes"), ("127.0.0.1", "--port")],
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


@pytest.mark.parametrize("columns", ["0", "9" * 30, "\N{SUPERSCRIPT TWO}"])
def test_an_odd_number_of_columns_hinders_nothing(columns: str, copied: Path) -> None:
    done = run("status", folder=copied, environment={"COLUMNS": columns, "LINES": columns})
    assert (done.code, done.err) == (0, "")
