"""Timestamps of a file: parsed, and checked to be sorted, unique and without gaps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.errors import DataError

Times = npt.NDArray[np.datetime64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """Where timestamps come from, for messages: file and column, and how the file is read."""

    file: str
    column: str
    time_format: str | None
    wide: bool

    def at(self, row: int) -> str:
        return f"{self.file}, row {row}, column {self.column!r}"


def frequency_problem(alias: str) -> str | None:
    """Why pandas knows no frequency `alias` (old spellings such as 'H' too); None where it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            offset = pd.tseries.frequencies.to_offset(alias)
    except (ValueError, OverflowError, TypeError, Warning):
        offset = None
    if offset is None or offset.n < 1:
        return f"{alias!r} is no pandas frequency; use for example 'h', '15min', 'D', 'W-SUN', 'MS'"
    return None


def parse_times(cells: Sequence[str], rows: Sequence[int], where: TimeColumn) -> Times:
    """The cells as datetime64[us] without a zone; offsets are converted to UTC.

    Raises:
        DataError: the first cell that is no timestamp, by row.
    """
    form = where.time_format or "ISO8601"
    try:
        parsed = pd.to_datetime(
            pd.Series(list(cells), dtype=object), format=form, utc=True, errors="coerce"
        )
    except ValueError as error:
        raise DataError(f"{where.file}: time_format {form!r} cannot be used ({error})") from None
    bad = np.flatnonzero(parsed.isna().to_numpy())
    if bad.size:
        first = int(bad[0])
        remedy = "correct the cell"
        if where.time_format is None:
            remedy += (
                ' or set time_format (such as "%d.%m.%Y %H:%M") under [source] in the task file'
            )
            form = "an ISO 8601 timestamp such as 2016-07-01 00:00:00"
        raise DataError(f"{where.at(rows[first])}: {cells[first]!r} is not {form}; {remedy}")
    times: Times = parsed.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return times


def check_times(times: Times, rows: Sequence[int], frequency: str, where: TimeColumn) -> None:
    """Sorted, unique, every step one `frequency`. `rows` are the timestamps' rows in the file.

    Raises:
        DataError: the first row that breaks the order or the step.
    """
    hint = (
        "" if not where.wide else "; if the file holds several series, set id_column under [source]"
    )
    steps = np.diff(times).astype(np.int64)
    stops = np.flatnonzero(steps <= 0)
    if stops.size:
        later = int(stops[0]) + 1
        if times[later] == times[later - 1]:
            raise DataError(
                f"{where.at(rows[later])}: duplicate timestamp {_show(times[later])} (also in row "
                f"{rows[later - 1]}); keep one row per timestamp{hint}"
            )
        raise DataError(
            f"{where.at(rows[later])}: unsorted timestamps: {_show(times[later])} comes after "
            f"{_show(times[later - 1])}; sort the rows by time{hint}"
        )
    expected = _expected(times, frequency)
    wrong = np.flatnonzero(times != expected)
    if wrong.size == 0:
        return
    first = int(wrong[0])
    if first == 0:
        raise DataError(
            f"{where.at(rows[0])}: {_show(times[0])} does not fit frequency {frequency!r}, "
            f"whose next timestamp is {_show(expected[0])}; "
            "set the frequency of the file in the task file"
        )
    if times[first] > expected[first]:
        raise DataError(
            f"{where.at(rows[first])}: gap: {_show(times[first])} follows "
            f"{_show(times[first - 1])}, but frequency {frequency!r} expects "
            f"{_show(expected[first])}; fill in the missing rows or correct the frequency"
        )
    raise DataError(
        f"{where.at(rows[first])}: {_show(times[first])} follows {_show(times[first - 1])} "
        f"too soon for frequency {frequency!r}, which expects {_show(expected[first])}; "
        "correct the row or the frequency"
    )


def _expected(times: Times, frequency: str) -> Times:
    """The timestamps that `frequency` would give from the first one on, (R,)."""
    start = pd.Timestamp(times[0])
    try:
        index = pd.date_range(start, periods=len(times), freq=frequency)
    except pd.errors.OutOfBoundsDatetime:
        # Far too coarse: years given for hours, say. The second step tells.
        index = pd.date_range(start, periods=2, freq=frequency)
    expected: Times = index.to_numpy().astype("datetime64[us]")
    # Steps after the last are never looked at: an earlier one differs before them.
    return np.concatenate([expected, np.full(len(times) - len(expected), expected[-1])])


def _show(time: np.datetime64) -> str:
    return str(pd.Timestamp(time))
