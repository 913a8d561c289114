"""A database on a disk that is full: it is read as ever, and what writes says what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.support.forked_cli import Done
from tests.support.forked_cli import run_here as run
from tests.support.paths import REPOSITORY
from tests.support.small_disk import fill

EXPORT = str(REPOSITORY / "notebooks" / "data" / "original.json.gz")
SAID = "tuner.db; make space on its disk and give the same command again"


@pytest.fixture
def full(small_disk: Path, tmp_path: Path) -> Path:
    """A database with a study, and no room beside it for SQLite's log."""
    path = small_disk / "tuner.db"
    assert run("study", "import", EXPORT, "--name", "x", *at(path), folder=tmp_path).code == 0
    fill(small_disk / "filler")
    return path


def at(path: Path) -> tuple[str, str]:
    return "--storage", f"sqlite:///{path}"


def works(*command: str, path: Path, folder: Path) -> Done:
    done = run(*command, *at(path), folder=folder)
    assert done.code == 0, done.err
    return done


def test_a_database_on_a_full_disk_is_read(full: Path, tmp_path: Path) -> None:
    before = full.read_bytes()
    assert "x" in works("status", path=full, folder=tmp_path).out
    works("db", "check", path=full, folder=tmp_path)
    works("best", "--study", "x", "--pick", "knee", path=full, folder=tmp_path)
    works("study", "export", "x", "--output", "x.json", path=full, folder=tmp_path)
    assert (tmp_path / "x.json").stat().st_size > 10_000
    assert full.read_bytes() == before


def test_what_writes_there_says_that_the_disk_is_full_and_works_once_there_is_room(
    full: Path, tmp_path: Path
) -> None:
    command = ("study", "import", EXPORT, "--name", "y")
    done = run(*command, *at(full), folder=tmp_path)
    assert done.code == 1
    assert f"database or disk is full: {full}" in done.error
    assert SAID in done.error
    (full.parent / "filler").unlink()
    works(*command, path=full, folder=tmp_path)


def test_where_the_log_holds_what_the_file_lacks_nothing_older_is_shown(
    full: Path, tmp_path: Path
) -> None:
    """As after a kill, where the log's index is gone: it cannot be made anew."""
    filler = full.parent / "filler"
    filler.unlink()
    with sqlite3.connect(full) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("UPDATE tuner_studies SET budget = 77")
        connection.commit()
        log = full.with_name("tuner.db-wal").read_bytes()
        file = full.read_bytes()
    connection.close()
    full.write_bytes(file)
    full.with_name("tuner.db-wal").write_bytes(log)
    fill(filler)
    done = run("status", *at(full), folder=tmp_path)
    assert done.code == 1
    assert SAID in done.error
    filler.unlink()
    assert "14/77" in works("status", path=full, folder=tmp_path).out
