"""Outliving a database outage: what must be stored is tried again until it is, or time is up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DBAPIError, OperationalError

T = TypeVar("T")
RETRY_S = 600.0
DATABASE_FAILURES = (DBAPIError, StorageInternalError)
"""What a failed database call raises: ours the first,
Optuna's the second, with the first as its cause."""

GONE = "its file was taken away while it was in use"
"""Of an SQLite database. Whoever took it may put it back."""
FULL = "database or disk is full"
"""As SQLite says it."""
_SQLITE_PASSES = ("locked", "busy", "full", "disk I/O", GONE)
_log = logging.getLogger(__name__)
NO_ROOM_BESIDE = "disk I/O error"
"""What SQLite says, too, where there is no room for a file beside the database."""


def persistently(
    action: Callable[[], T],
    what: str,
    *,
    retry_s: float = RETRY_S,
    give_up: Callable[[], bool] = lambda: False,
) -> T:
    """Run `action` until the database takes it,
    waiting longer after each failure (0.2 s up to 10 s).

    Only failures that pass are tried again: a lost connection, a locked or restarting database.

    Raises:
        DBAPIError, StorageInternalError: the last failure, after `retry_s` seconds, or at once
            when it is not a passing one.
    """
    deadline = time.monotonic() + retry_s
    pause = 0.2
    while True:
        try:
            return action()
        except DATABASE_FAILURES as error:
            if not passes(error) or time.monotonic() + pause > deadline or give_up():
                raise
            _log.warning(
                "the database did not take %s (%s); trying again in %.1f s",
                what,
                cause_in_words(error),
                pause,
            )
            time.sleep(pause)
            pause = min(pause * 2, 10.0)


def cause_of(error: Exception) -> str:
    """The one line in which the driver says why a database
    call failed (no statement, no parameters).
    """
    inner = (
        error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
    )
    lines = str(getattr(inner, "orig", None) or inner).strip().splitlines() or [
        type(inner).__name__
    ]
    return lines[0].strip().rstrip(".")


def cause_in_words(error: Exception) -> str:
    """The same for a person, who is asked what the driver does not say."""
    cause = cause_of(error)
    return f"{cause}: is the disk full?" if cause == NO_ROOM_BESIDE else cause


def passes(error: Exception) -> bool:
    """True for an outage, False for a mistake of ours."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    if not isinstance(cause, DBAPIError):
        return False
    if cause.connection_invalidated:
        return True
    if not isinstance(cause, OperationalError):
        return False
    # SQLite calls nearly everything operational, also a table that does not exist.
    of_sqlite = type(cause.orig).__module__ == "sqlite3"
    return not of_sqlite or any(word in str(cause.orig) for word in _SQLITE_PASSES)
