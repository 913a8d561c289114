"""What to do where a database refuses, by the words in which the servers say so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.errors import StorageError
from tuner.storage.retry import DATABASE_FAILURES, FULL, GONE, cause_in_words, cause_of

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
            "this role may not do that: use one that may write rows (docs/databases.md), and where "
            "tables are missing let their owner run 'tuner db init' once"
        )
    if any(re.search(words, cause) for words in _ALTERED):
        return (
            "somebody altered its tables: "
            "'tuner db check' names what is missing and how to have it again"
        )
    return None
