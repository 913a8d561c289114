"""What passes is tried again, what is wrong is raised at once; a PostgreSQL that restarts is
outlived."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from tests.support.postgres_cluster import Cluster
from tests.support.small_study import definition
from tuner.storage.database import Database, open_database
from tuner.storage.retry import cause_of, failure_of, persistently
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume

IDLE = "idle_in_transaction_session_timeout"


def test_a_statement_that_is_wrong_is_raised_at_once(database: Database) -> None:
    tries: list[int] = []

    def wrong() -> None:
        tries.append(1)
        with database.engine.connect() as connection:
            connection.execute(text("SELECT * FROM no_such_table"))

    with pytest.raises(DBAPIError) as raised:
        persistently(wrong, "nonsense", retry_s=30)
    assert len(tries) == 1
    assert "no_such_table" in cause_of(raised.value)
    assert "SELECT" not in cause_of(raised.value)


def test_what_is_no_database_failure_is_raised_at_once() -> None:
    tries: list[int] = []

    def wrong() -> None:
        tries.append(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        persistently(wrong, "nonsense", retry_s=30)
    assert len(tries) == 1


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.sqlite.SQLITE_TIMEOUT_S", 0.01)
    naps: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(naps), sleep=naps.append)
    monkeypatch.setattr("tuner.storage.retry.time", clock)
    database = open_database(parse_url(f"sqlite:///{tmp_path}/locked.db"))
    holder = sqlite3.connect(tmp_path / "locked.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    tries: list[int] = []

    def blocked() -> None:
        tries.append(1)
        database.engine.connect().execute(text("SELECT 1"))

    with pytest.raises(DBAPIError, match="locked"):
        persistently(blocked, "anything", retry_s=30.0)
    assert naps == pytest.approx(
        [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    )  # the next would end beyond the thirty seconds
    assert len(tries) == len(naps) + 1
    with pytest.raises(DBAPIError, match="locked"):
        persistently(blocked, "anything", retry_s=60, give_up=lambda: True)
    assert len(tries) == len(naps) + 2
    holder.close()
    database.close()


def test_a_lock_that_is_released_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.storage.sqlite.SQLITE_TIMEOUT_S", 0.01)
    database = open_database(parse_url(f"sqlite:///{tmp_path}/locked.db"))
    study = create_or_resume(database, "small", definition(), trials=3)
    holder = sqlite3.connect(tmp_path / "locked.db", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    threading.Timer(0.5, holder.close).start()
    # Through Optuna itself, whose storage wraps the driver's error in one of its own.
    trial = persistently(
        lambda: study.optuna.ask(definition().space.stored()), "a new trial", retry_s=60
    )
    assert trial.number == 0
    database.close()


def test_a_worker_frozen_in_a_transaction_does_not_hold_up_the_others(
    postgres: Cluster,
) -> None:
    """Its locks go with its connection; when it wakes, what it wanted is tried again."""
    name = postgres.create_database()
    database = open_database(parse_url(postgres.url(name)))
    study = create_or_resume(database, "small", definition(), trials=3)
    tries: list[int] = []

    def frozen() -> int:
        with database.engine.begin() as connection:
            study.ledger._lock(connection)
            if not tries:
                tries.append(1)
                connection.execute(
                    text(f"SET LOCAL {IDLE} = '300ms'")
                )  # no transaction but this one
                assert (
                    ThreadPoolExecutor().submit(study.ledger.claim, "bob").result(120) is not None
                )
            return len(tries) + int(connection.execute(text("SELECT 1")).scalar_one())

    assert persistently(frozen, "anything", retry_s=120) == 2
    database.close()
    postgres.empty_database(name)


def test_a_server_that_says_nothing_any_more_is_given_up(postgres: Cluster) -> None:
    """The kernel ends such a connection; `make chaos` cuts a real one."""
    name = postgres.create_database()
    database = open_database(parse_url(postgres.url(name)))
    with database.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        asked = driver.info.get_parameters()
        limits = [
            connection.execute(text(f"SHOW {each}")).scalar_one() for each in ("lock_timeout", IDLE)
        ]
    assert (asked["tcp_user_timeout"], asked["keepalives_idle"], asked["keepalives_count"]) == (
        "30000",
        "15",
        "3",
    )
    assert limits == ["1min", "30s"]
    database.close()
    postgres.empty_database(name)


def test_where_sqlite_does_not_say_that_a_disk_is_full_people_are_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = OperationalError("INSERT", {}, sqlite3.OperationalError("disk I/O error"))
    calls: list[int] = []

    def full_once() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise failure
        return "stored"

    assert persistently(full_once, "a result") == "stored"
    assert "did not take a result (disk I/O error: is the disk full?)" in caplog.text
    assert str(failure_of(failure)) == (
        "the database failed: disk I/O error: is the disk full?; check it and run again"
    )
    assert cause_of(failure) == "disk I/O error"  # who knows it to be full says so, and no question
