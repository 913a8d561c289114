"""Timestamps of a file: parsed, and checked to be sorted, unique and without gaps; those of an
index, counted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.errors import DataError

Times = npt.NDArray[np.datetime64]

DAY_NS = 86_400_000_000_000
UNDATED = "1970-01-01"
"""The first row of an index that nobody dated."""

SET_ID_COLUMN = "set id_column under [source]"
SHORTER_FREQUENCY = "set a shorter frequency in the task file"
"""Remedies of who has a task file; while one is proposed they are options."""

_OFFSET = re.compile(r"(?:[zZ]|[+-]\d\d(?::?\d\d)?)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """Where timestamps come from, for messages: file and column, and how the file is read."""

    file: str
    column: str
    time_format: str | None
    wide: bool
    zone: str | None = None

    def at(self, row: int) -> str:
        return f"{self.file}, row {row}, column {self.column!r}"

    def show(self, time: np.datetime64) -> str:
        """A time for a message; where a time zone was taken off, it says so."""
        return f"{pd.Timestamp(time)}{' UTC' if self.zone else ''}"


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


def within_a_day(alias: str) -> bool:
    """Whether one step of frequency `alias` is shorter than a day."""
    offset = pd.tseries.frequencies.to_offset(alias)
    return isinstance(offset, pd.offsets.Tick) and offset.nanos < DAY_NS


def counted_times(rows: int, start: str | None, frequency: str, file: str) -> Times:
    """Times of an index, (rows,): one `frequency` after the other, from `start` on.

    Raises:
        DataError: they leave the calendar, or `start` is none of them.
    """
    first = pd.Timestamp(start or UNDATED)
    try:
        index = pd.date_range(first, periods=rows, freq=frequency)
    except (pd.errors.OutOfBoundsDatetime, OverflowError):
        raise DataError(
            f"{file}: {rows} rows at frequency {frequency!r} from {first} on leave the calendar; "
            f"{SHORTER_FREQUENCY}"
        ) from None
    if start is not None and index[0] != first:
        raise DataError(
            f"{file}: start {start!r} does not fit frequency {frequency!r}, whose next timestamp "
            f"is {index[0]}; correct one of them in the task file"
        )
    times: Times = index.to_numpy().astype("datetime64[us]")
    return times


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


def have_offsets(texts: Sequence[str], where: TimeColumn) -> npt.NDArray[np.bool_]:
    """Which times say their offset from UTC, (R,)."""
    if where.zone is None:
        return np.ones(len(texts), dtype=np.bool_)
    if where.time_format is not None:
        return np.full(len(texts), "%z" in where.time_format, dtype=np.bool_)
    # A day alone ends in what looks like an offset.
    return np.array([":" in text and bool(_OFFSET.search(text)) for text in texts], dtype=np.bool_)


def check_times(times: Times, rows: Sequence[int], frequency: str, where: TimeColumn) -> None:
    """Sorted, unique, every step one `frequency`. `rows` are the timestamps' rows in the file.

    Raises:
        DataError: the first row that breaks the order or the step.
    """
    check_order(times, rows, where)
    expected = _expected(times, frequency)
    wrong = np.flatnonzero(times != expected)
    if wrong.size == 0:
        return
    first = int(wrong[0])
    if first == 0:
        raise DataError(off_the_grid(times[0], rows[0], expected[0], frequency, where))
    if times[first] > expected[first]:
        raise DataError(
            f"{where.at(rows[first])}: gap: {where.show(times[first])} follows "
            f"{where.show(times[first - 1])}, but frequency {frequency!r} expects "
            f"{where.show(expected[first])}; fill in the missing rows, set gaps under [source], or "
            "correct the frequency"
        )
    raise DataError(
        f"{where.at(rows[first])}: {where.show(times[first])} follows "
        f"{where.show(times[first - 1])} too soon for frequency {frequency!r}, which expects "
        f"{where.show(expected[first])}; correct the row or the frequency"
    )


def off_the_grid(
    time: np.datetime64, row: int, expected: np.datetime64, frequency: str, where: TimeColumn
) -> str:
    """What to say of a first timestamp that is none of its frequency's."""
    return (
        f"{where.at(row)}: {where.show(time)} does not fit frequency {frequency!r}, "
        f"whose next timestamp is {where.show(expected)}; "
        "set the frequency of the file in the task file"
    )


def check_order(times: Times, rows: Sequence[int], where: TimeColumn) -> None:
    """Sorted and unique. `rows` are the timestamps' rows in the file.

    Raises:
        DataError: the first row that breaks the order.
    """
    hint = f"; if the file holds several series, {SET_ID_COLUMN}" if where.wide else ""
    steps = np.diff(times).astype(np.int64)
    stops = np.flatnonzero(steps <= 0)
    if stops.size:
        later = int(stops[0]) + 1
        if times[later] == times[later - 1]:
            raise DataError(
                f"{where.at(rows[later])}: duplicate timestamp {where.show(times[later])} "
                f"(also in row {rows[later - 1]}); keep one row per timestamp{hint}"
            )
        raise DataError(
            f"{where.at(rows[later])}: unsorted timestamps: {where.show(times[later])} comes after "
            f"{where.show(times[later - 1])}; sort the rows by time{hint}"
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


# Local time with daylight saving, taken to UTC: what stands twice in autumn is told apart by its
# order, what no clock showed in spring is refused.


def to_utc(local: Times, rows: Sequence[int], zone: str, where: TimeColumn) -> Times:
    """Local times of one series, in the order of the file, as UTC, (R,) datetime64[us].

    Of the times that a clock shows twice, the first ones are daylight saving time; from where they
    begin again, they are standard time.

    Args:
        local: what clocks showed, (R,).
        rows: where each stands in the file.
        zone: an IANA name.
        where: the column.

    Raises:
        DataError: a time that no clock in `zone` showed.
    """
    clock = pd.DatetimeIndex(local)
    summer = _is_summer(local, _shown_twice(clock, zone))
    found = clock.tz_localize(zone, ambiguous=summer, nonexistent="NaT")
    never = np.flatnonzero(found.isna())
    if never.size:
        first = int(never[0])
        raise DataError(
            f"{where.at(rows[first])}: {pd.Timestamp(local[first])} was never shown by a clock in "
            f"{zone}, which went forward then; correct timezone under [source], or leave it out "
            "where the times are UTC or standard time"
        )
    return _plain(found.tz_convert("UTC"))


def to_local(utc: Times, zone: str) -> Times:
    """What clocks in `zone` showed, (R,) datetime64[us]."""
    return _plain(pd.DatetimeIndex(utc).tz_localize("UTC").tz_convert(zone))


def _shown_twice(clock: pd.DatetimeIndex, zone: str) -> npt.NDArray[np.bool_]:
    lost = clock.tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward")
    return np.asarray(lost.isna(), dtype=np.bool_)


def _is_summer(local: Times, twice: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which of the times that are shown twice are shown for the first time, (R,)."""
    summer = np.zeros(len(local), dtype=np.bool_)
    before = -2
    for position in np.flatnonzero(twice):
        first_of_the_night = position != before + 1
        went_back = not first_of_the_night and local[position] <= local[before]
        summer[position] = first_of_the_night or (bool(summer[before]) and not went_back)
        before = int(position)
    return summer


def _plain(index: pd.DatetimeIndex) -> Times:
    times: Times = index.tz_localize(None).to_numpy().astype("datetime64[us]")
    return times


# How many rows the season of a frequency has: the cycle that a naive forecast repeats.


DAY_S = 86_400
_ROWS = {"D": 7, "B": 5, "W": 52, "MS": 12, "ME": 12, "QS": 4, "QE": 4}
"""Of calendar frequencies: a week of days, a year of weeks, months or quarters."""


def season_rows(frequency: str) -> int | None:
    """Rows of a day for what is finer than one, of a week for days, of a year for what is coarser;
    None where nothing of the kind is known.

    Args:
        frequency: a pandas alias, such as `h`, `15min`, `D`, `W-SUN`.
    """
    if frequency == "h":
        return 24
    offset = pd.tseries.frequencies.to_offset(frequency)
    name = offset.rule_code.partition("-")[0]
    if isinstance(offset, pd.tseries.offsets.Tick):
        step_s = offset.nanos / 1e9
        if step_s < DAY_S:
            rows = DAY_S / step_s
            return round(rows) if rows.is_integer() else None
        return _ROWS["D"] if step_s == DAY_S else None
    return _ROWS.get(name) if offset.n == 1 else None
