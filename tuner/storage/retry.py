"""Outliving a database outage: what must be stored is tried again until it is, or time is up."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DBAPIError, OperationalError

from tuner.errors import StorageError

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


# What to do where a database refuses, by the words in which the servers say so.


_REFUSED = (
    "permission denied",
    "must be owner",
    "read-only transaction",
    "command denied",
    "read-only mode",
)
_ALTERED = (
    r"column .* does not exist",
    r"relation .* does not exist",
    r"no such (column|table)",
    r"has no column",
    r"Unknown column",
    r"Table .* doesn't exist",
)


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Raises StorageError where the database fails meanwhile, with what to do."""
    try:
        yield
    except DATABASE_FAILURES as error:
        raise failure_of(error) from error


def failure_of(error: Exception) -> StorageError:
    """A failure of the database as a sentence for a person."""
    remedy = remedy_where_refused(cause_of(error)) or "check it and run again"
    return StorageError(f"the database failed: {cause_in_words(error)}; {remedy}")


def remedy_where_refused(cause: str) -> str | None:
    """What to do where this user may not do this, or the tables are not as we made them; None: it
    is something else.
    """
    if "readonly database" in cause:
        return (
            "this user may only read it: name a database that can be written, "
            "or let its owner give that right"
        )
    if FULL in cause:
        return (
            "make space on its disk and give the same command again; until then it can only be read"
        )
    if GONE in cause:
        return (
            "put it, or a backup of it, back there and give the same command again: results that "
            "it has not taken wait beside it, in outbox/, and are stored then"
        )
    if any(words in cause for words in _REFUSED):
        return (
            "this role may not do that: use one that may write rows (docs/several-machines.md), "
            "and where tables are missing let their owner run 'tuner db init' once"
        )
    if any(re.search(words, cause) for words in _ALTERED):
        return (
            "somebody altered its tables: "
            "'tuner db check' names what is missing and how to have it again"
        )
    return None
