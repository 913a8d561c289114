"""Which rows of a sheet belong to which series, and when they were."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.local_time import to_utc
from tuner.data.proposal.rhythm import DAY, rhythm_of
from tuner.data.proposal.sheet import Column, Floats, Sheet
from tuner.data.times import TimeColumn, Times
from tuner.errors import DataError

Positions = npt.NDArray[np.int64]

ID_NAMES = (
    "unique_id", "series_id", "id", "series", "item_id", "item", "store", "shop", "station", "site",
    "sensor", "symbol", "ticker", "name", "group", "country", "region", "filiale",
)  # fmt: skip
"""Usual names of the column that tells series apart, in small letters."""
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?")
LONG = 0.05
"""The share of repeated times from which on a file is long; clocks going back repeat fewer."""
ZONES = (
    "Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "America/Chicago",
    "America/Denver", "America/Los_Angeles", "America/Sao_Paulo", "Australia/Sydney",
    "Pacific/Auckland",
)  # fmt: skip
"""One for each rule of daylight saving that many live by."""


def looks_long(times: Times) -> bool:
    """Whether times repeat, or go back, as those of several series do."""
    repeated = 1 - len(np.unique(times)) / len(times)
    return repeated >= LONG or bool((np.diff(times).astype(np.int64) < -DAY).any())


def clock_column(sheet: Sheet, time_column: str) -> str | None:
    """A column of times of day beside the one of days; None where there is none."""
    for column in sheet.columns:
        texts = column.texts if column.numbers is None and column.name != time_column else None
        if texts and all(_CLOCK.fullmatch(text) for text in texts):
            return column.name
    return None


def id_columns(sheet: Sheet, times: Times, time_column: str) -> tuple[Column, ...]:
    """The columns that would tell series apart: with them no time stands twice; likeliest first."""
    found = []
    for column in sheet.columns:
        names = names_in(column)
        if column.name == time_column or names is None or column.missing:
            continue
        if column.numbers is not None and not _is_named(column.name):
            continue  # a column of whole numbers is more likely a target
        codes, unique = pd.factorize(np.asarray(names, dtype=object))
        if not 1 < len(unique) <= len(codes) // 3:
            continue
        pairs = pd.DataFrame({"id": codes, "time": times.astype(np.int64)})
        if pairs.duplicated().mean() < LONG:
            found.append((_rank(column.name), len(unique), column))
    return tuple(each[2] for each in sorted(found, key=lambda each: each[:2]))


def names_in(column: Column) -> Sequence[str] | None:
    """What a column would call the series; None where it has fractions, or times."""
    if column.numbers is None:
        return column.texts
    if column.missing or (column.numbers != np.floor(column.numbers)).any():
        return None
    return column.texts or [f"{number:.0f}" for number in column.numbers]


def groups_of(names: Sequence[str] | None, rows: int) -> tuple[Positions, ...]:
    """Positions of each series' rows; all of them where there are no names."""
    if names is None:
        return (np.arange(rows),)
    codes, unique = pd.factorize(np.asarray(names, dtype=object))
    order = np.argsort(codes, kind="stable")
    return tuple(np.split(order, np.cumsum(np.bincount(codes, minlength=len(unique)))[:-1]))


def zones_that_fit(local: Times) -> tuple[str, ...]:
    """Zones whose daylight saving explains a repeated hour in autumn, or a missing one in spring:
    those under which least is missing.
    """
    steps = np.diff(local).astype(np.int64)
    forward = steps[steps > 0]
    if not len(forward) or int(np.median(forward)) >= DAY:
        return ()
    before = rhythm_of(local)
    found = []
    for zone in ZONES:
        times = _in_utc(local, zone)
        rhythm = None if times is None else rhythm_of(times)
        better = rhythm is not None and (before is None or rhythm.missing < before.missing)
        if rhythm is not None and rhythm.regular and better:
            found.append((rhythm.missing, zone))
    least = min((missing for missing, _ in found), default=0)
    return tuple(zone for missing, zone in found if missing == least)


def _in_utc(local: Times, zone: str) -> Times | None:
    where = TimeColumn(file="", column="", time_format=None, wide=True, zone=zone)
    try:
        return to_utc(local, range(len(local)), zone, where)
    except DataError:
        return None


def _is_named(name: str) -> bool:
    return name.strip().lower().endswith("id") or _rank(name) < len(ID_NAMES)


def _rank(name: str) -> int:
    plain = name.strip().lower()
    return ID_NAMES.index(plain) if plain in ID_NAMES else len(ID_NAMES)


def counts_rows(column: Column, groups: Sequence[Positions]) -> bool:
    """Whether a column only counts the rows, of all series or of each, in whatever steps: a row's
    number, or Unix time. A data frame's index may have lost some rows. `groups` are the positions
    of each series' rows.
    """
    if column.numbers is None or len(column.numbers) < 3:  # noqa: PLR2004 - two numbers are no row
        return False
    if _is_even(np.diff(column.numbers)):
        return True
    steps = np.concatenate([np.diff(column.numbers[np.sort(each)]) for each in groups])
    if not len(steps):
        return False
    whole = column.is_nameless and bool((column.numbers == np.round(column.numbers)).all())
    return _is_even(steps) or (whole and bool((steps > 0).all()))


def _is_even(steps: Floats) -> bool:
    return bool(steps[0] != 0 and (steps == steps[0]).all())
