"""Outliving a database outage: what must be stored is tried again until it is, or time is up."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
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
            why, again = cause_in_words(error), f"trying again in {pause:.1f} s"
            _log.warning("the database did not take %s (%s); %s", what, why, again)
            time.sleep(pause)
            pause = min(pause * 2, 10.0)


def cause_of(error: Exception) -> str:
    """The one line in which the driver says why a database
    call failed (no statement, no parameters).
    """
    inner = (isinstance(error, StorageInternalError) and error.__cause__) or error
    lines = str(getattr(inner, "orig", None) or inner).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(inner).__name__


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


REMEDIES = {
    "readonly database": "this user may only read it: name a database that can be written, or let "
    "its owner give that right",
    FULL: "make space on its disk and give the same command again; until then it can only be read",
    GONE: "put it, or a backup of it, back there and give the same command again: results that it "
    "has not taken wait beside it, in outbox/, and are stored then",
    "permission denied|must be owner|read-only transaction|command denied|read-only mode": "this "
    "role may not do that: use one that may write rows (docs/several-machines.md), and where "
    "tables are missing let their owner run 'tuner db init' once",
    "(column|relation) .* does not exist|no such (column|table)|has no column|Unknown column"
    "|Table .* doesn't exist": "somebody altered its tables: 'tuner db check' names what is "
    "missing and how to have it again",
}
"""What to do where this user may not do something, or the tables are not as we made them: by the
words (a pattern) in which the servers say so."""


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Raises StorageError where the database fails meanwhile, with what to do."""
    try:
        yield
    except DATABASE_FAILURES as error:
        raise failure_of(error) from error


def failure_of(error: Exception) -> StorageError:
    """A failure of the database as a sentence for a person."""
    remedy = remedy_among(REMEDIES, cause_of(error)) or "check it and run again"
    return StorageError(f"the database failed: {cause_in_words(error)}; {remedy}")


def remedy_among(remedies: Mapping[str, str], cause: str) -> str | None:
    """The first of these whose pattern is found in the cause; None: it is something else."""
    return next((remedy for words, remedy in remedies.items() if re.search(words, cause)), None)
