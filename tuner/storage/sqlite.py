"""Connections to an SQLite file, also to one that may only be read,
and how their transactions begin.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection

from tuner.storage.optuna.trials import DURABLE, READING
from tuner.storage.retry import GONE

SQLITE_TIMEOUT_S = 60.0


class ReadOnlyConnection(sqlite3.Connection):
    """To a file that this user cannot write."""


def sqlite_connector(path: Path) -> Callable[[], sqlite3.Connection]:
    """What makes connections to the file at `path`: once it was there, to no other."""
    there = False

    def connect() -> sqlite3.Connection:
        nonlocal there
        exists = path.exists()
        if there and not exists:
            # SQLite would make an empty one, and a backup would find something in its place.
            raise sqlite3.OperationalError(f"{GONE}: {path}")
        if exists and not may_be_written(path):
            return _read_only(path)
        # isolation_level None: we say BEGIN ourselves. Python's implicit BEGIN is deferred, and two
        # workers that upgrade a read lock at once would deadlock into "database is locked".
        connection = sqlite3.connect(
            path, timeout=SQLITE_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        there = True
        return connection

    return connect


def may_be_written(path: Path) -> bool:
    """Whether this user may write the file, and beside it: a writer keeps its log there."""
    beside = path.absolute().parent
    return os.access(path, os.W_OK, effective_ids=True) and os.access(
        beside, os.W_OK | os.X_OK, effective_ids=True
    )


def begin_on_sqlite(connection: Connection) -> None:
    """Begin with the right to write, unless only reading is wanted or possible."""
    options = connection.get_execution_options()
    if isinstance(connection.connection.dbapi_connection, ReadOnlyConnection):
        connection.exec_driver_sql("BEGIN")
        return
    if options.get(DURABLE, False):
        connection.exec_driver_sql("PRAGMA synchronous=FULL")
    connection.exec_driver_sql("BEGIN" if options.get(READING, False) else "BEGIN IMMEDIATE")


def _read_only(path: Path) -> sqlite3.Connection:
    """As its writers leave it, or, where none is at work, as a file that nobody changes meanwhile.

    SQLite needs a writer's log and index beside the file, or to make them; without either it reads
    only what it is told to be immutable.
    """
    named = f"file:{quote(str(path.absolute()))}"
    connection = _connection(f"{named}?mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        connection = _connection(f"{named}?immutable=1")
    return connection


def _connection(named: str) -> sqlite3.Connection:
    return sqlite3.connect(
        named,
        uri=True,
        timeout=SQLITE_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=ReadOnlyConnection,
    )
