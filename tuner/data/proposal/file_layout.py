"""When the rows of a sheet were, and of which series: times, ids, zone and frequency."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.proposal.sheet import Column, Floats, Sheet
from tuner.data.times import TimeColumn, Times, frequency_problem, have_offsets, to_utc
from tuner.errors import DataError, UsageError

# The frequency of times that may have gaps.


SECOND, DAY = 1_000_000, 86_400_000_000
"""Microseconds."""
UNITS = ((3600 * SECOND, "h"), (60 * SECOND, "min"), (SECOND, "s"), (1000, "ms"), (1, "us"))
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
MOST_MISSING = 20
"""Times the rows: a grid that is longer is none."""
SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """A frequency, how many of its timestamps the times lack, and whether all times are its."""

    frequency: str
    missing: int
    regular: bool
    step_us: int
    """The usual step."""


def rhythm_of(times: Times) -> Rhythm | None:
    """The frequency of ascending times, (R,); None for fewer than three, or repeated ones."""
    steps = np.diff(times).astype(np.int64)
    if len(steps) < 2 or (steps <= 0).any():  # noqa: PLR2004 - one step shows no rhythm
        return None
    sizes, counts = np.unique(steps, return_counts=True)
    usual = int(sizes[np.argmax(counts)])
    found = [_on(times, each, usual) for each in _candidates(times, usual)]
    return min(found, key=lambda each: (not each.regular, each.missing))


def _candidates(times: Times, step: int) -> Sequence[str]:
    days, rest = divmod(step, DAY)
    if days == 0 or rest:
        size, unit = next((size, unit) for size, unit in UNITS if step % size == 0)
        return [alias(step // size, unit)]
    if days == 1:
        weekend = (times.astype("datetime64[D]").astype(np.int64) + 3) % 7 >= SATURDAY
        return ["D"] if weekend.any() else ["B", "D"]
    first = pd.Timestamp(times[0])
    month, weekday = MONTHS[first.month - 1], WEEKDAYS[first.weekday()]
    found = [alias(days // 7, f"W-{weekday}")] if days % 7 == 0 else [alias(days, "D")]
    for lengths, aliases in (
        (range(28, 32), ("MS", "ME", "BMS", "BME")),
        (range(90, 93), (f"QS-{month}", f"QE-{month}")),
        (range(365, 367), (f"YS-{month}", f"YE-{month}")),
    ):
        if days in lengths:
            found = [*aliases, *found]
    return found


def alias(number: int, unit: str) -> str:
    """`number` units as pandas writes them."""
    return unit if number == 1 else f"{number}{unit}"


def step_of(frequency: str) -> int:
    """Microseconds from one timestamp of a frequency to the next."""
    steps = np.diff(pd.date_range("2001-01-01", periods=4, freq=frequency).to_numpy())
    return int(np.median(steps.astype("timedelta64[us]").astype(np.int64)))


def _on(times: Times, frequency: str, step: int) -> Rhythm:
    first, last = pd.Timestamp(times[0]), pd.Timestamp(times[-1])
    offset = pd.tseries.frequencies.to_offset(frequency)
    longest = MOST_MISSING * len(times)
    if isinstance(offset, pd.offsets.Tick):
        count = int((times[-1] - times[0]).astype(np.int64) // max(1, offset.nanos // 1000))
        if count > longest:
            return Rhythm(frequency=frequency, missing=longest, regular=False, step_us=step)
    grid = pd.date_range(first, last, freq=frequency).to_numpy().astype("datetime64[us]")
    regular = bool(np.isin(times, grid).all())
    return Rhythm(
        frequency=frequency, missing=max(0, len(grid) - len(times)), regular=regular, step_us=step
    )


# Which rows of a sheet belong to which series, and when they were.


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
        if column.numbers is not None and not _names_an_id(column.name):
            continue  # a column of whole numbers is more likely a target
        codes, unique = pd.factorize(np.asarray(names, dtype=object))
        if not 1 < len(unique) <= len(codes) // 3:
            continue
        pairs = pd.DataFrame({"id": codes, "time": times.astype(np.int64)})
        if pairs.duplicated().mean() < LONG:
            found.append((_id_rank(column.name), len(unique), column))
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


def _names_an_id(name: str) -> bool:
    return name.strip().lower().endswith("id") or _id_rank(name) < len(ID_NAMES)


def _id_rank(name: str) -> int:
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


# What a person said of a file, and what is guessed where nobody said it.


NONE = "none"
"""The answer that there is no such column, or no time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers; None where there is none yet."""

    header: str | None = None
    """"yes" or "no"."""
    time_column: str | None = None
    time_format: str | None = None
    id_column: str | None = None
    timezone: str | None = None
    frequency: str | None = None
    gaps: str | None = None
    targets: tuple[str, ...] | None = None
    horizon: int | None = None
    input_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What was taken where the file leaves it open."""

    key: str
    """The field of `Told` that would settle it."""
    value: str
    question: str
    why: str
    """What speaks for it, or what it means: for the comment in the file."""
    choices: tuple[str, ...] = ()
    """All answers; empty where any text is one."""


# Which column holds the times, and how they are written.


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
    return tuple(sorted(found, key=lambda each: _time_rank(each.column)))


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
        if not _names_a_time(column.name) or column.missing:
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


def _time_rank(name: str) -> int:
    plain = name.strip().lower()
    return NAMES.index(plain) if plain in NAMES else len(NAMES)


def _names_a_time(name: str) -> bool:
    return _time_rank(name) < len(NAMES)


COUNTED = "D"
"""The frequency of rows that nobody dated, where none is said."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """What was found; `when` is None for an index."""

    when: When | None
    id_column: str | None
    timezone: str | None
    groups: tuple[Positions, ...]
    rhythm: Rhythm
    rows: int
    guesses: tuple[Guess, ...]
    span_us: int = 0

    @property
    def series(self) -> int:
        """How many there are."""
        return len(self.groups)

    @property
    def shortest(self) -> int:
        """Rows of the shortest series."""
        return min(map(len, self.groups))


def layout_of(sheet: Sheet, told: Told) -> Layout:
    """Raises:
    DataError: a column that was named and is not there, or holds no times.
    UsageError: what was said is no frequency.
    """
    if told.frequency is not None and (problem := frequency_problem(told.frequency)):
        raise UsageError(f"--frequency: {problem}")
    guesses: list[Guess] = []
    when = _when(sheet, told, guesses)
    id_column = _id_column(sheet, told, when, guesses)
    names = None if id_column is None else names_in(sheet.column(id_column, "--id-column"))
    groups = groups_of(names, sheet.rows)
    if when is None:
        if told.frequency is None:
            guesses.append(
                Guess(
                    key="frequency",
                    value=COUNTED,
                    question="How far apart are two rows (h, 15min, D, B, W, MS, ...)?",
                    why="nothing says how far apart two rows are",
                )
            )
        rhythm = _named(told.frequency or COUNTED)
        return Layout(
            when=None, id_column=id_column, timezone=None, groups=groups, rhythm=rhythm,
            rows=sheet.rows, guesses=tuple(guesses),
        )  # fmt: skip
    longest = max(groups, key=len)
    timezone = _timezone(when, when.times[longest], told, guesses)
    by_group = [_dated(when.times[positions], timezone, when) for positions in groups]
    usual = _rhythm(when.times[longest] if timezone is None else max(by_group, key=len), told)
    fits = [
        _on(times, usual.frequency, step_of(usual.frequency))
        for times in by_group
        if _ascends(times)
    ]
    rhythm = replace(
        usual,
        regular=all(each.regular for each in fits),
        missing=sum(each.missing for each in fits),
    )
    first, last = when.times.min(), when.times.max()
    return Layout(
        when=when, id_column=id_column, timezone=timezone, groups=groups, rhythm=rhythm,
        rows=sheet.rows, guesses=tuple(guesses), span_us=int((last - first).astype(np.int64)),
    )  # fmt: skip


def _when(sheet: Sheet, told: Told, guesses: list[Guess]) -> When | None:
    if told.time_column == NONE:
        return None
    if told.time_column is not None:
        column = sheet.column(told.time_column, "--time-column")
        when = read_times(column, told.time_format)
        if when is None:
            raise DataError(
                f"--time-column: column {column.name!r} of {sheet.path} holds no times in a form "
                "that is known; write them as 2016-07-01 00:00:00, or say --time-column none"
            )
    else:
        found = times_in(sheet)
        names = tuple(each.column for each in found)
        when = found[0] if found else None
        if len(found) != 1:
            guesses.append(
                Guess(
                    key="time_column",
                    value=when.column if when else NONE,
                    question="Which column holds the times ('none': the rows are counted)?",
                    why="no column holds times: the rows are counted"
                    if when is None
                    else f"times stand in {', '.join(names)}",
                    choices=(*names, NONE)
                    if found
                    else (NONE, *(column.name for column in sheet.columns)),
                )
            )
        if when is not None and told.time_format is not None:
            when = read_times(sheet.column(when.column, ""), told.time_format)
    if when is not None and when.others and told.time_format is None:
        forms = [when.time_format or ISO, *(each or ISO for each in when.others)]
        guesses.append(
            Guess(
                key="time_format",
                value=forms[0],
                question=f"How are the times in {when.column!r} written?",
                why="days and months could stand in another order",
                choices=tuple(forms),
            )
        )
    return when


def _id_column(sheet: Sheet, told: Told, when: When | None, guesses: list[Guess]) -> str | None:
    if told.id_column is not None:
        return None if told.id_column == NONE else sheet.column(told.id_column, "--id-column").name
    if when is None or not looks_long(when.times):
        return None
    clock = clock_column(sheet, when.column)
    if clock is not None:
        raise DataError(
            f"{sheet.path}: the day stands in column {when.column!r} and the time of day in "
            f"{clock!r}; join them into one column, such as 2016-07-01 00:00:00"
        )
    found = id_columns(sheet, when.times, when.column)
    if not found:
        return None
    if len(found) > 1:
        names = tuple(column.name for column in found)
        guesses.append(
            Guess(
                key="id_column",
                value=names[0],
                question="Which column tells the series apart?",
                why=f"{', '.join(names)} could tell the series apart",
                choices=(*names, NONE),
            )
        )
    return found[0].name


def _timezone(when: When, local: Times, told: Told, guesses: list[Guess]) -> str | None:
    if told.timezone is not None:
        return None if told.timezone == NONE else _known_zone(told.timezone)
    if when.has_offsets:
        return None
    found = zones_that_fit(local)
    if not found:
        return None
    guesses.append(
        Guess(
            key="timezone",
            value=found[0],
            question="An hour is there twice or missing, as clocks change: which time zone "
            "('none': leave the times as they are)?",
            why=f"an hour is there twice or missing, as clocks change in {', '.join(found)}",
        )
    )
    return found[0]


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"unknown time zone {name!r}; use for example 'Europe/Berlin', 'America/New_York'"
        ) from None
    return name


def _rhythm(times: Times, told: Told) -> Rhythm:
    """Where times do not ascend there is none: the reader of the file says where."""
    if told.frequency is not None:
        return _named(told.frequency)
    found = rhythm_of(times) or rhythm_of(np.unique(times))
    return found or Rhythm(frequency=COUNTED, missing=0, regular=True, step_us=DAY)


def _named(frequency: str) -> Rhythm:
    """Of rows that nobody dated, or nothing but this is known of."""
    return Rhythm(frequency=frequency, missing=0, regular=True, step_us=step_of(frequency))


def _dated(local: Times, zone: str | None, when: When) -> Times:
    if zone is None or when.has_offsets:
        return local
    where = TimeColumn(file="", column=when.column, time_format=None, wide=True, zone=zone)
    return to_utc(local, range(1, len(local) + 1), zone, where)


def _ascends(times: Times) -> bool:
    return bool((np.diff(times).astype(np.int64) > 0).all())
