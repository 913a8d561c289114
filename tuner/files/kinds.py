"""Kinds of values: which types and ranges a figure, a moment, a count or a text has that somebody
stored, in words too.

Who reads such a value relies on this. Whoever shares a database, or sends a file, may have written
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any

from tuner.files.plain import LARGEST, check_plain

LARGEST_FIGURE = 1e100
"""Beyond any loss or time, and far enough from the largest float to be squared."""

LAST_MOMENT_S = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970: no calendar goes on."""

MOST_EPOCHS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value is: whether one is of this kind, what is expected in words, and its unit."""

    holds: Callable[[Any], bool]
    expected: str
    unit: str = ""


def _between(low: float, high: float) -> Callable[[Any], bool]:
    """Numbers of a range; neither infinite nor NaN, which no comparison holds for."""

    def holds(value: Any) -> bool:
        return (type(value) is float or type(value) is int) and low <= value <= high

    return holds


def _whole(most: int) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        return type(value) is int and 0 <= value <= most

    return holds


def _of_type(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _versions(value: Any) -> bool:
    return isinstance(value, dict) and all(
        each is None or isinstance(each, str) for each in value.values()
    )


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def all_hold(value: Any) -> bool:
        return isinstance(value, list) and all(holds(each) for each in value)

    return all_hold


def _plain(value: Any) -> bool:
    if isinstance(value, str | bool):
        return True
    try:
        check_plain(value)
    except ValueError:
        return False
    return True


_FIGURE, _SPAN = _between(-LARGEST_FIGURE, LARGEST_FIGURE), _between(0.0, LARGEST_FIGURE)

FIGURE = Kind(_FIGURE, "a finite number")
SECONDS = Kind(_FIGURE, "a finite number", "s")
SECONDS_EACH = Kind(_SPAN, "a number from 0 on", "s")
SHARE = Kind(_between(0.0, 1.0), "a number from 0 to 1")
CORES = Kind(_SPAN, "a number from 0 on", "cores")
JOULES = Kind(_SPAN, "a number from 0 on", "J")
RATE = Kind(_SPAN, "a number from 0 on", "1/s")
MOMENT = Kind(_between(0.0, LAST_MOMENT_S), "a time in seconds since 1970", "s since 1970")
EPOCHS = Kind(_whole(MOST_EPOCHS), "a number of epochs", "epochs")
COUNT = Kind(_whole(LARGEST), "a whole number from 0 on")
BYTES = Kind(_whole(LARGEST), "a whole number from 0 on", "bytes")
FLAG = Kind(_of_type(bool), "true or false")
TEXT = Kind(_of_type(str), "a text")
VERSIONS = Kind(_versions, "a table of texts")
TABLE = Kind(_of_type(dict), "a table")
TABLES = Kind(_list_of(_of_type(dict)), "a list of tables")
SEEDS = Kind(_list_of(_whole(LARGEST)), "a list of seeds")
FIGURES = Kind(_list_of(_FIGURE), "a list of finite numbers")
PLAIN = Kind(_plain, "plain data")
PLAIN_LIST = Kind(_list_of(_plain), "a list of plain data")


# What a field of a trial's record says of the thing it holds.


class OverSeeds(Enum):
    """What a thing becomes for a trial of several seeds, from what it was for each."""

    MEDIAN = auto()
    """Of counts, one that occurred."""
    MIN = auto()
    MAX = auto()
    ANY = auto()
    ALL = auto()
    FIRST = auto()
    LAST = auto()
    JOINED = auto()
    """The texts that are not empty."""


class In(Flag):
    """Where else a thing is kept or shown, beside the trial's own record."""

    NOWHERE = 0
    RUNS = auto()
    """In what is kept of each seed's run, where a trial has several."""
    TIMINGS = auto()
    """In what is kept of each repetition of a contaminated run."""
    PROVENANCE = auto()
    """In an exported configuration: how and where it was trained, and how far."""
    SECTION = auto()
    """In a section of `tuner trial` that speaks of it; the others are listed at its end."""
    NULL = auto()
    """A training records it also where it is nothing, as null."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a field says of the thing it holds."""

    kind: Kind
    over_seeds: OverSeeds
    kept: In
