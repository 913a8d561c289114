"""Which column holds the times, and how they are written."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tuner.data.proposal.sheet import Column, Sheet
from tuner.data.times import TimeColumn, Times, have_offsets

NAMES = (
    "ds", "date", "datetime", "timestamp", "time", "date_time", "date time", "utc_timestamp",
    "datum", "zeit", "zeitstempel", "fecha", "day", "hour", "month", "week", "year", "period",
)  # fmt: skip
"""Usual names of a time column, in small letters."""

_CLOCKS = (" %H:%M:%S", " %H:%M", "")
_DAYS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y", "%m-%d-%Y",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y",
)  # fmt: skip
FORMATS: tuple[str | None, ...] = (None, *(day + clock for day in _DAYS for clock in _CLOCKS))
"""As in strptime; None is ISO 8601."""
ISO = "ISO 8601"
OF_NUMBERS = ("%Y%m%d", "%Y%m%d%H", "%Y%m%d%H%M", "%Y")
SAMPLE = 100
ENOUGH = 0.95
"""The share of a column that must be times: what else there is, is told when it is read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class When:
    """A column of times as read with `time_format`, (R,): UTC where they have offsets. `others`
    are formats that read it, too.
    """

    column: str
    time_format: str | None
    times: Times
    has_offsets: bool
    others: tuple[str | None, ...] = ()


def times_in(sheet: Sheet) -> tuple[When, ...]:
    """The columns that can be read as times, the likeliest first."""
    found = [each for column in sheet.columns if (each := read_times(column)) is not None]
    return tuple(sorted(found, key=lambda each: _rank(each.column)))


def read_times(column: Column, time_format: str | None = None) -> When | None:
    """A column read as times, in `time_format` or in the first that fits; None where none does."""
    if column.times is not None:
        return When(
            column=column.name,
            time_format=None,
            times=column.times,
            has_offsets=column.has_offsets,
        )
    texts = column.texts
    if column.numbers is not None:
        if not _is_named(column.name) or column.missing:
            return None
        texts = texts or [f"{number:.0f}" for number in column.numbers]
    if not texts:
        return None
    formats: Sequence[str | None] = FORMATS if column.numbers is None else OF_NUMBERS
    if time_format is not None:
        formats = [None if time_format == ISO else time_format]
    fitting = [each for each in formats if _parsed(texts[:SAMPLE], each) is not None]
    whole = [(each, times) for each in fitting if (times := _parsed(texts, each)) is not None]
    if not whole:
        return None
    form, times = min(whole, key=lambda pair: _breaks(pair[1]))
    others = [each for each, known in whole if each != form and _breaks(known) == _breaks(times)]
    where = TimeColumn(file="", column=column.name, time_format=form, wide=True, zone="?")
    return When(
        column=column.name,
        time_format=form,
        times=times,
        has_offsets=bool(have_offsets(texts, where).any()),
        others=tuple(others),
    )


def _parsed(texts: Sequence[str], form: str | None) -> Times | None:
    """None where too little of it can be read so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = pd.Series(list(texts), dtype=object)
        parsed = pd.to_datetime(cells, format=form or "ISO8601", utc=True, errors="coerce")
    good = parsed.notna()
    if good.mean() < ENOUGH:
        return None
    times: Times = parsed.ffill().bfill().dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return times


def _breaks(times: Times) -> tuple[int, int]:
    """How irregular times are: steps back, and kinds of steps. The right format has few."""
    steps = np.diff(times).astype(np.int64)
    return int((steps < 0).sum()), len(np.unique(steps))


def _rank(name: str) -> int:
    plain = name.strip().lower()
    return NAMES.index(plain) if plain in NAMES else len(NAMES)


def _is_named(name: str) -> bool:
    return _rank(name) < len(NAMES)
