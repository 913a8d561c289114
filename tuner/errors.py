"""What can go wrong, each with the remedy in its one line.

A `TunerError` is a message for a person: it names the thing, says what was expected and what to do.
The command line prints it without a traceback and exits with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes of a command that Ctrl-C or SIGTERM ended, after a clean stop."""


class TunerError(Exception):
    """Something failed while running: data, database, disk or training (exit code 1)."""

    exit_code = 1


class UsageError(TunerError):
    """A wrong flag, name or TOML file (exit code 2)."""

    exit_code = 2


class DataError(TunerError):
    """Data that is missing, unreadable or unfit for the task (exit code 1)."""


class DataGoneError(DataError):
    """Data that was there and is no more while it is trained on (exit code 1): no fault of the
    trial, which is handed back.
    """


class StorageError(TunerError):
    """A database that cannot be reached, opened or understood (exit code 1)."""


class EmptyDatabaseError(StorageError):
    """A database that can be reached and holds no studies yet (exit code 1)."""


class StudyGoneError(StorageError):
    """A study that was deleted from the database while somebody used it (exit code 1)."""

    @staticmethod
    def of(name: str) -> StudyGoneError:
        return StudyGoneError(
            f"study {name!r} is in the database no more: another program deleted it; "
            "'tuner db check' says what is left of it"
        )


class InterruptionError(TunerError):
    """Ctrl-C or SIGTERM, where nothing was to be finished first (exit code 130 or 143)."""

    def __init__(self, message: str, by: BaseException | None) -> None:
        self.exit_code = exit_code_of(by)
        super().__init__(message)


def exit_code_of(interruption: BaseException | None) -> int:
    """Of a `KeyboardInterrupt`: the command line raises one at SIGTERM, too, with that code."""
    given = () if interruption is None else interruption.args
    return TERMINATED if TERMINATED in given else INTERRUPTED


def unknown_name(kind: str, name: str, known: Iterable[str], *, more: str = "") -> UsageError:
    """The error for a name that is not among `known`: nearest names first, then all of them."""
    names = sorted(known)
    near = guess(name, names, cutoff=0.5)
    listing = ", ".join(names) if names else "none"
    return UsageError(f"unknown {kind} {name!r}{near}; there are: {listing}{more}")


def guess(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """What a misspelt name may have meant, in brackets; empty where nothing is near."""
    names = sorted(known)
    near = [each for each in names if each.casefold() == name.casefold()]  # only its case is wrong
    near = near or difflib.get_close_matches(name, names, n=2, cutoff=cutoff)
    return f" (did you mean {' or '.join(repr(each) for each in near)}?)" if near else ""


def first_line(error: BaseException) -> str:
    """An exception on one line: what it says first, or its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
