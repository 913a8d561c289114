"""The state of a campaign travels in one file, whole, from call to call."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import REPOSITORY
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.verdict.verified import verifications_of


def fill(path: Path, rows: int) -> sqlite3.Connection:
    """A database that stays open, with its rows in the write-ahead log."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(rows)])
    connection.commit()
    return connection


def rows_in(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM t").fetchone()
    return int(count)


def test_the_state_of_a_database_in_use_comes_back_with_logs_and_calls(
    modules: Any, tmp_path: Path
) -> None:
    state, work, again = modules["state"], tmp_path / "work", tmp_path / "again"
    (work / "logs").mkdir(parents=True)
    again.mkdir()
    (work / "logs" / "worker-a.log").write_bytes(b"early" + b"x" * state.LOG_BYTES)
    (work / "calls.jsonl").write_text("{}\n")
    archive = tmp_path / "out" / state.NAME
    with contextlib.closing(fill(work / state.DATABASE, 1000)):
        state.save(work, archive)
    assert state.restore(archive, again)
    assert rows_in(again / state.DATABASE) == 1000
    assert (again / "logs" / "worker-a.log").read_bytes() == b"x" * state.LOG_BYTES
    assert (again / "calls.jsonl").read_text() == "{}\n"
    assert [path.name for path in archive.parent.iterdir()] == [state.NAME]


def test_no_state_is_a_beginning_and_a_damaged_one_an_error(modules: Any, tmp_path: Path) -> None:
    state = modules["state"]
    assert not state.restore(tmp_path / state.NAME, tmp_path)
    (tmp_path / state.NAME).write_bytes(b"\x1f\x8bno such thing")
    with pytest.raises(SystemExit, match="cannot be read"):
        state.restore(tmp_path / state.NAME, tmp_path)


def test_exported_studies_are_a_state_to_go_on_from(modules: Any, tmp_path: Path) -> None:
    state, again = modules["state"], tmp_path / "again"
    again.mkdir()
    assert not state.restore_exports(tmp_path, again, ["quick-small-original"])
    assert not list(again.iterdir())
    shutil.copy(
        REPOSITORY / "notebooks" / "data" / "original.json.gz",
        tmp_path / "quick-small-original.json.gz",
    )
    (tmp_path / state.CALLS).write_text("{}\n")
    assert state.restore_exports(tmp_path, again, ["quick-small-original", "quick-small-rmsnorm"])
    database = open_database(parse_url(f"sqlite:///{again / state.DATABASE}"), create=False)
    try:
        study = open_study(database, "quick-small-original")
        assert study.ledger.counts().finished == study.ledger.counts().budget == 14
        assert len(verifications_of([study]).runs()) > 0
    finally:
        database.close()
    assert state.calls_in(again) == "{}\n"
    (tmp_path / "quick-small-original.json.gz").write_bytes(b"\x1f\x8bno such thing")
    with pytest.raises(SystemExit, match=r"quick-small-original\.json\.gz"):
        state.restore_exports(tmp_path, tmp_path / "third", ["quick-small-original"])


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
def test_a_state_that_changed_on_its_way_is_not_taken_for_the_one_written(
    modules: Any, tmp_path: Path, at: float
) -> None:
    state, archive = modules["state"], tmp_path / "campaign.tar.gz"
    with contextlib.closing(fill(tmp_path / state.DATABASE, 5000)):
        state.save(tmp_path, archive)
    content = bytearray(archive.read_bytes())
    content[int(at * len(content))] ^= 0x5A
    archive.write_bytes(content)
    with pytest.raises(SystemExit, match="cannot be read"):
        state.restore(archive, tmp_path / "again")


def test_the_state_of_a_first_call_that_was_killed_lists_no_calls(
    modules: Any, tmp_path: Path
) -> None:
    state, archive, again = modules["state"], tmp_path / "campaign.tar.gz", tmp_path / "again"
    with contextlib.closing(fill(tmp_path / state.DATABASE, 3)):
        state.save(tmp_path, archive)
    assert state.restore(archive, again)
    assert state.calls_in(again) == ""
    assert modules["report"].calls_in is state.calls_in


def test_the_state_is_written_meanwhile_too(modules: Any, tmp_path: Path) -> None:
    state, archive = modules["state"], tmp_path / "campaign.tar.gz"
    with (
        contextlib.closing(fill(tmp_path / state.DATABASE, 3)),
        state.saved_regularly(tmp_path, archive, every_s=0.01),
    ):
        deadline = time.monotonic() + 60
        while not archive.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
