"""Timestamps of a file: how they are written, read, and checked to be sorted, unique and without
gaps; those of an index, counted.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.calendars import Times, grid, within_a_day
from tuner.data.source_kinds import FileSource, listed
from tuner.errors import DataError, first_line
from tuner.files.plain import excerpt

SET_ID_COLUMN = "set id_column under [source]"
SHORTER_FREQUENCY = "set a shorter frequency in the task file"
"""Remedies of who has a task file; while one is proposed they are options."""

Flags = npt.NDArray[np.bool_]
Lines = Sequence[int] | npt.NDArray[np.int64]
"""Where rows stand in a file, from 1 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """Where timestamps come from, for messages: the source of a file, how it is called here, and
    the frequency of its rows.
    """

    source: FileSource
    frequency: str = "h"
    file: str = ""

    @property
    def label(self) -> str:
        """The file."""
        return self.file or str(self.source.path)

    @property
    def column(self) -> str:
        """Its name; of several, all of them."""
        return " ".join(listed(self.source.time_column))

    def at(self, row: int, column: str | None = None) -> str:
        """A cell."""
        return f"{self.label}, row {row}, column {column or self.column!r}"

    def show(self, time: np.datetime64) -> str:
        """A time for a message; where a time zone was taken off, it says so."""
        return f"{pd.Timestamp(time)}{' UTC' if self.source.timezone else ''}"


# How times are written: a form is one of strptime, or None for ISO 8601. Beyond strptime, `%q` is a
# quarter, `%Z` an abbreviated zone, `%G-W%V` a week, `unix` and the like count from 1970, and what
# ends in ` - ...` is a range, whose beginning counts.


ISO = "ISO 8601"
RANGE = " - ..."
UNIX = {"unix": "s", "unix_ms": "ms", "unix_us": "us", "unix_ns": "ns"}
_HOURS = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2,
    "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9, "AEST": 10, "AEDT": 11, "EST": -5, "EDT": -4,
    "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}  # fmt: skip
"""East of Greenwich."""
_DAYS = tuple(
    (f"{pattern}(?:([ T]+|, )(.*))?", forms)
    for pattern, *forms in (
        (r"\d{4}([-./])\d{1,2}\1\d{1,2}", "%Y{0}%m{0}%d"),
        (r"\d{1,2}([-./])\d{1,2}\1\d{4}", "%d{0}%m{0}%Y", "%m{0}%d{0}%Y"),
        (r"\d{1,2}([-./])\d{1,2}\1\d{2}", "%d{0}%m{0}%y", "%m{0}%d{0}%y", "%y{0}%m{0}%d"),
        (r"\d{1,2}([-./ ]?)[A-Za-z]{3,9}\1\d{4}", "%d{0}%b{0}%Y", "%d{0}%B{0}%Y"),
        (r"\d{1,2}([-./ ])[A-Za-z]{3,9}\1\d{2}", "%d{0}%b{0}%y", "%d{0}%B{0}%y"),
        (r"[A-Za-z]{3,9} \d{1,2}(,?) \d{4}", "%b %d{0} %Y", "%B %d{0} %Y"),
        (r"[A-Za-z]{3,9}([-./ ]?)\d{4}", "%b{0}%Y", "%B{0}%Y"),
        (r"[A-Za-z]{3,9}([-./ ]?)\d{2}", "%b{0}%y", "%B{0}%y"),
        (r"\d{2}([-./ ])[A-Za-z]{3,9}", "%y{0}%b"),
        (r"\d{4}([-./ ])[A-Za-z]{3,9}", "%Y{0}%b", "%Y{0}%B"),
        (r"\d{1,2}([-./ ])\d{4}", "%m{0}%Y"),
        (r"\d{4}([-./ ])\d{1,2}", "%Y{0}%m"),
        (r"\d{4}([-./ ]?)[Qq][1-4]", "%Y{0}Q%q"),
        (r"[Qq][1-4]([-./ ]?)\d{4}", "Q%q{0}%Y"),
        (r"[1-4][Qq]([-./ ]?)\d{4}", "%qQ{0}%Y"),
        (r"\d{4}(-?)W\d{2}", "%G{0}W%V"),
        (r"\d{4}M\d{2}()", "%YM%m"),
        (r"\d{14}()", "%Y%m%d%H%M%S"),
        (r"\d{12}()", "%Y%m%d%H%M"),
        (r"\d{10}()", "%Y%m%d%H", "unix"),
        (r"\d{10}\.\d+()", "unix"),
        (r"\d{8}()", "%Y%m%d", "%d%m%Y", "%m%d%Y"),
        (r"\d{6}()", "%Y%m"),
        (r"\d{4}()", "%Y"),
        (r"\d{13}()", "unix_ms"),
        (r"\d{16}()", "unix_us"),
        (r"\d{19}()", "unix_ns"),
    )
)
_CLOCK = re.compile(
    r"(?P<H>\d{1,2})(?P<M>:\d{2})?(?P<S>:\d{2})?(?P<f>\.\d{1,9})?(?P<p> ?[AaPp][Mm])?"
    r"(?P<z> ?(?:[zZ]|[+-]\d{2}:?\d{2}|UTC|GMT|\(?[A-Z]{3,4}\)?))?"
)
_ISO_LIKE = re.compile(
    r"\d{4}-\d{2}(-\d{2}([ T]\d{2}(:?\d{2}(:?\d{2}(\.\d+)?)?)?([zZ]|[+-]\d{2}(:?\d{2})?)?)?)?"
)
_OFFSET = re.compile(r"\s*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$")
ENOUGH = 0.95
"""The share of a column that must be times: what else there is, is told when it is read."""
_LOOKS = re.compile(
    r"(?i)\d{1,4}([-./])\d{1,2}\1\d{1,4}\b.*|\d{1,2}:\d{2}\b.*|\d{4}[-/ ]?[qw]\d{1,2}|"
    r".*\b(jan|feb|m[aä]r|apr|ma[iy]|ju[nl]|aug|sep|o[ck]t|nov|de[cz]|dim|lun|mon|tue)[a-zé]*\b.*\d.*"
)


def looks_like_times(texts: Sequence[str]) -> bool:
    """Whether most of these cells would be times for a person."""
    return 2 * sum(1 for each in texts if _LOOKS.fullmatch(each)) > len(texts)


def forms_of(texts: Sequence[str]) -> tuple[str | None, ...]:
    """The forms in which some cells may be written, by what most of them look like."""
    seen = Counter(_forms_of_cell(each.strip()) for each in texts)
    seen.pop((), None)
    return seen.most_common(1)[0][0] if seen else ()


def clock_form(text: str) -> str | None:
    """The form of a time of day, such as 05:30; None where it is none."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    codes = {"H": "%I" if found["p"] else "%H", "M": ":%M", "S": ":%S", "f": ".%f", "p": "%p"}
    codes["z"] = "%Z" if (found["z"] or "").strip(" ()") in _HOURS else "%z"
    there = ((found[part], code) for part, code in codes.items() if found[part])
    return "".join(" " * cell.startswith(" ") + code for cell, code in there)


def _forms_of_cell(text: str) -> tuple[str | None, ...]:
    begin, dash, rest = text.partition(" - ")
    ending = RANGE if dash and rest else ""
    if _ISO_LIKE.fullmatch(begin) and not ending:
        return (None,)
    for pattern, forms in _DAYS:
        found = re.fullmatch(pattern, begin)
        clock = clock_form(found[3]) if found and found[3] is not None else ""
        if found and clock is not None:
            return tuple(f"{f.format(found[1])}{found[2] or ''}{clock}{ending}" for f in forms)
    return ()


class Read(NamedTuple):
    """Cells read as times, each (R,): UTC where they have an offset, NaT where a cell is none; what
    clocks showed; and which have an offset.
    """

    times: pd.Series[pd.Timestamp]
    clock: pd.Series[pd.Timestamp]
    dated: Flags


def read_form(texts: pd.Series[Any], form: str | None) -> Read:
    """Texts read in a form, or moments.

    Raises:
        ValueError: the form cannot be used.
    """
    if texts.dtype.kind == "M":
        zoned = texts.dt.tz is not None
        times = texts.dt.tz_convert(None) if zoned else texts
        clock = texts.dt.tz_localize(None)
        flags = np.full(len(texts), zoned)
        return Read(times.astype("datetime64[us]"), clock.astype("datetime64[us]"), flags)
    if form in UNIX:
        unit: Any = UNIX[form]
        times = pd.to_datetime(pd.to_numeric(texts, errors="coerce"), unit=unit, errors="coerce")
        times = times.astype("datetime64[us]")
        return Read(times, times, np.ones(len(texts), dtype=np.bool_))
    if form is not None:
        texts, form = _in_strptimes_words(texts, form)
    times, dated = _parsed(texts, form)
    if not dated.any():
        return Read(times, times, dated)
    clocks = texts.str.contains(":", regex=False)
    bare = texts.where(~clocks, texts.str.replace(_OFFSET, "", regex=True))
    return Read(times, _parsed(bare, form and form.removesuffix("%z").rstrip())[0], dated)


def _in_strptimes_words(texts: pd.Series[str], form: str) -> tuple[pd.Series[str], str]:
    if form.endswith(RANGE):
        texts, form = texts.str.split(" - ", n=1).str[0], form.removesuffix(RANGE)
    if "%q" in form:  # the first month of the quarter
        month = re.compile(r"(?<!\d)([1-4])(?!\d)")
        texts = texts.str.replace(month, lambda m: f"{3 * int(m[1]) - 2:02d}", regex=True)
        form = form.replace("%q", "%m").upper().replace("%M", "%m")
        texts = texts.str.upper()
    if "%Z" in form:
        zone, hours = re.compile(r"\(?([A-Z]{3,4})\)?$"), _HOURS
        texts = texts.str.replace(
            zone, lambda z: f"{hours[z[1]]:+03d}00" if z[1] in hours else z[0], regex=True
        )
        form = form.replace("%Z", "%z")
    if form.endswith("%V"):
        texts, form = texts + "-1", f"{form}-%u"
    return texts, form


def _parsed(texts: pd.Series[str], form: str | None) -> tuple[pd.Series[pd.Timestamp], Flags]:
    given: dict[str, Any] = {"format": form or "ISO8601", "errors": "coerce"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = pd.to_datetime(texts, **given)
            dated = np.full(len(texts), found.dt.tz is not None)
        except re.error as error:  # a part of a time twice
            raise ValueError(first_line(error)) from None
        except ValueError:  # offsets that differ, or that some cells have
            found = pd.to_datetime(texts, **given, utc=True)
            there = texts.str.contains(":", regex=False) & texts.str.contains(_OFFSET)
            dated = there.to_numpy(np.bool_)
    if found.dt.tz is not None:
        found = found.dt.tz_convert(None)
    found = found.astype("datetime64[us]").mask(texts.isin(["now", "today"]))  # which pandas reads
    late = texts[found.isna()].str.extract(r"(.*\D)24((?::00)*)$").dropna()  # the end of a day
    if len(late):
        found.loc[late.index] = _parsed(late[0] + "00" + late[1], form)[0] + pd.Timedelta(days=1)
    return found, dated


def parse_times(texts: pd.Series[Any], rows: Lines, where: TimeColumn) -> tuple[Times, Times, bool]:
    """The cells as datetime64[us] without a zone, offsets converted to UTC, or left out where a
    step is a day or more; what clocks showed; and whether they have an offset.

    Raises:
        DataError: the first cell that is no timestamp, by row; or some with an offset and some
            without.
    """
    form = where.source.time_format
    try:
        read = read_form(texts, form)
    except ValueError as error:
        raise DataError(f"{where.label}: time_format {form!r} cannot be used ({error})") from None
    bad = np.flatnonzero(read.times.isna().to_numpy())
    if bad.size:
        at, cell = where.at(rows[int(bad[0])]), excerpt(str(texts.iloc[int(bad[0])]))
        if texts.dtype.kind == "M":
            raise DataError(f"{at}: the cell is empty; correct or remove the row")
        remedy = "correct the cell"
        if form is None:
            form = "an ISO 8601 timestamp such as 2016-07-01 00:00:00"
            remedy += ' or set time_format (such as "%d.%m.%Y %H:%M") under [source]'
        raise DataError(f"{at}: {cell!r} is not {form}; {remedy}")
    dated = read.dated
    if dated.any() and not dated.all():
        at = where.at(rows[int(np.flatnonzero(dated != dated[0])[0])])
        raise DataError(f"{at}: some times have an offset from UTC, and some have none")
    times, clock = (each.to_numpy("datetime64[us]") for each in (read.times, read.clock))
    return times if within_a_day(where.frequency) else clock, clock, bool(dated.any())


def counted_times(rows: int, where: TimeColumn) -> Times:
    """Times of an index, (rows,): one step of the frequency after the other, from the start on.

    Raises:
        DataError: they leave the calendar, or the start is none of them.
    """
    start, file = where.source.start, where.label
    first = pd.Timestamp(start or "1970-01-01")
    try:
        times = grid(first, where.frequency, periods=rows)
    except DataError as error:
        raise DataError(f"{file}: {rows} {error}; {SHORTER_FREQUENCY}") from None
    if start is not None and times[0] != first:
        said = f"frequency {where.frequency!r}, whose next timestamp is {pd.Timestamp(times[0])}"
        raise DataError(f"{file}: start {start!r} does not fit {said}")
    return times


def check_order(times: Times, rows: Lines, where: TimeColumn) -> None:
    """Sorted and unique. `rows` are the timestamps' rows in the file.

    Raises:
        DataError: the first row that breaks the order.
    """
    wide = where.source.id_column is None
    hint = f"; if the file holds several series, {SET_ID_COLUMN}" if wide else ""
    stops = np.flatnonzero(np.diff(times).astype(np.int64) <= 0)
    if not stops.size:
        return
    later = int(stops[0]) + 1
    at, time, before = where.at(rows[later]), where.show(times[later]), where.show(times[later - 1])
    said = f"duplicate timestamp {time} (also in row {rows[later - 1]}); keep one row per timestamp"
    if time != before:
        said = f"unsorted timestamps: {time} comes after {before}; sort the rows by time"
    raise DataError(f"{at}: {said}{hint}")


def check_steps(times: Times, rows: Lines, where: TimeColumn) -> None:
    """Every step one of the frequency. `rows` are the rows of the ascending timestamps in the file.

    Raises:
        DataError: the first row that breaks the step.
    """
    try:
        expected = grid(times[0], where.frequency, periods=len(times))
    except DataError:  # far too coarse: years given for hours, say; the second step tells
        expected = grid(times[0], where.frequency, periods=2)
    wrong = np.flatnonzero(times[: len(expected)] != expected)
    if wrong.size:
        first = int(wrong[0])
        gap = "gap: " if times[first] > expected[first] else "too soon: "
        remedy = "fill in the missing rows, set gaps under [source], or correct the frequency"
        refuse_step(first, expected[first], gap, remedy, times, rows, where)


def refuse_step(
    at: int, expected: np.datetime64, what: str, remedy: str,
    times: Times, rows: Lines, where: TimeColumn,
) -> None:  # fmt: skip
    """Raises DataError: the row at position `at` stands where `expected` should."""
    said, should, frequency = where.show(times[at]), where.show(expected), where.frequency
    why = f"{what}{said} follows {where.show(times[at - 1])}, but frequency {frequency!r} expects"
    if at == 0:
        why = f"{said} does not fit frequency {frequency!r}, whose next timestamp is"
        remedy = "set the frequency of the file in the task file"
    raise DataError(f"{where.at(rows[at])}: {why} {should}; {remedy}")


# Local time with daylight saving, taken to UTC: what stands twice in autumn is told apart by its
# order, what no clock showed in spring is refused.


def to_utc(local: Times, rows: Lines, where: TimeColumn) -> Times:
    """Local times of one series, in the order of the file, as UTC, (R,) datetime64[us].

    Of the times that a clock shows twice, the first ones are daylight saving time; from where they
    begin again, they are standard time.

    Args:
        local: what clocks showed, (R,).
        rows: where each stands in the file.
        where: the column, whose source has a time zone.

    Raises:
        DataError: a time that no clock there showed.
    """
    zone = str(where.source.timezone)
    clock = pd.DatetimeIndex(local)
    if len(clock) and not 1 < clock.year.min() <= clock.year.max() < 9999:  # noqa: PLR2004 - as zones
        raise DataError(f"{where.at(rows[-1])}: times leave the calendar; correct them")
    once = clock.tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward")
    summer = _is_summer(local, np.asarray(once.isna()))
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
