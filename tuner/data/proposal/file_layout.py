"""When the rows of a sheet were, and of which series: times, ids, zone and frequency."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations, product, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tuner.data.calendars import DAY, Fit, Times, ascends, fit, fit_to, frequency_problem
from tuner.data.dialect import MISSING
from tuner.data.open_file import Positions
from tuner.data.proposal.sheet import NAMELESS, NONE, SAMPLE, Column, Guess, Sheet, Told
from tuner.data.source_kinds import FileSource, zone_problem
from tuner.data.table import joined_ids, joined_times, positions_of_each
from tuner.data.times import (
    ENOUGH,
    ISO,
    Read,
    TimeColumn,
    clock_form,
    forms_of,
    looks_like_times,
    read_form,
    to_local,
    to_utc,
)
from tuner.errors import DataError, UsageError
from tuner.files.plain import excerpt

ID_NAMES = (
    "unique_id", "series_id", "id", "series", "item_id", "item", "store", "shop", "station",
    "site", "sensor", "symbol", "ticker", "name", "group", "country", "region", "filiale", "dept",
    "department", "product", "sku", "family", "meter", "location", "city", "state", "county",
    "province", "customer", "client", "category", "warehouse", "plant", "device", "node",
    "detector",
)  # fmt: skip
"""Usual names of the column that tells series apart, in small letters."""
LONG = 0.05
"""The share of repeated times from which on a file is long; clocks going back repeat fewer."""
ZONES = (
    "Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "America/Chicago",
    "America/Denver", "America/Los_Angeles", "America/Sao_Paulo", "Australia/Sydney",
    "Pacific/Auckland",
)  # fmt: skip
"""One for each rule of daylight saving that many live by."""
NAMES = (
    "ds", "date", "datetime", "timestamp", "date_time", "utc_timestamp", "datum", "zeitstempel",
    "fecha", "horodate", "zeitpunkt", "time", "zeit", "day", "hour", "month", "week", "year",
    "period", "quarter", "von", "mtu", "start", "yyyymm", "anfang", "jahr", "monat",
)  # fmt: skip
"""Usual names of a time column, in small letters, or of a word in it."""
SURE_NAMES = NAMES[:11]
PARTS = {
    "%Y": (1000, 3000, "year yr yyyy jahr annee année ano"),
    "%m": (1, 12, "month mo mm mnth monat mois mes"),
    "%d": (1, 31, "day dd tag jour dia dom"),
    "%H": (0, 24, "hour hr hh stunde heure hora he hour_ending"),
    "%M": (0, 59, "minute min mi"),
    "%q": (1, 4, "quarter qtr quartal trimestre"),
}
"""Of columns that hold a part of a time: the least and the largest number, and usual names."""
FITS = 0.9
"""The share of the best reading's score from which on another one fits as well."""
COUNTED = "D"
"""The frequency of rows that nobody dated, where none is said."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class When:
    """Columns of times as read with `time_format`, (R,): UTC where they have offsets; `clock` is
    what clocks showed then.
    """

    columns: tuple[str, ...]
    time_format: str | None
    times: Times
    clock: Times
    has_offsets: bool
    texts: pd.Series[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """What was found; `when` is None for an index."""

    groups: tuple[Positions, ...]
    fit: Fit
    when: When | None = None
    ids: tuple[str, ...] = ()
    timezone: str | None = None
    off: Positions | tuple[()] = ()
    """Of rows that are none of the frequency's."""
    missing: int = 0
    guesses: tuple[Guess, ...] = ()
    span_us: int = 0

    @property
    def series(self) -> int:
        """How many there are."""
        return len(self.groups)


def layout_of(sheet: Sheet, told: Told) -> Layout:
    """Raises:
    DataError: a column that was named and is not there, or holds no times.
    UsageError: what was said is no frequency.
    """
    if told.frequency is not None and (problem := frequency_problem(told.frequency)):
        raise UsageError(f"--frequency: {problem}")
    readings = [(when, _dated(sheet, told, when)) for when in _candidates(sheet, told)]
    if not readings:
        return _undated(sheet, told)
    names = tuple(dict.fromkeys(",".join(when.columns) for when, _ in readings))
    best = max(layout.fit.score for _, layout in readings)
    fitting = [each for each in readings if each[1].fit.score >= FITS * best]
    columns = min((when.columns for when, _ in fitting), key=lambda each: _time_rank(each[0]))
    fitting = [each for each in fitting if each[0].columns == columns]
    fitting.sort(key=lambda each: -each[1].fit.score)
    guesses = []
    if len(names) > 1:
        why = f"times stand in {', '.join(names)}"
        guesses.append(Guess("time_column", ",".join(columns), why, (*names, NONE)))
    if len(fitting) > 1 and told.time_format is None:
        forms = tuple(when.time_format or ISO for when, _ in fitting)
        why = "days and months could stand in another order"
        shown = tuple(_shown(sheet, *each) for each in fitting)
        guesses.append(Guess("time_format", forms[0], why, forms, shown))
    chosen = fitting[0][1]
    return replace(chosen, guesses=(*guesses, *chosen.guesses))


def _undated(sheet: Sheet, told: Told) -> Layout:
    if told.time_column != NONE:
        _refuse_unread_times(sheet, told)
    _refuse_rows_as_series(sheet)
    guesses = []
    if told.time_column is None:
        names = (NONE, *(column.name for column in sheet.columns))
        why = "no column holds times: the rows are counted"
        guesses.append(Guess("time_column", NONE, why, names))
    if told.frequency is None:
        why = "nothing says how far apart two rows are"
        guesses.append(Guess("frequency", COUNTED, why))
    ids = tuple(each.name for each in _named(sheet, told.id_column, "--id-column"))
    known = Fit(frequency=told.frequency or COUNTED, score=1.0)
    return Layout(ids=ids, groups=_groups(sheet, ids), fit=known, guesses=tuple(guesses))


def _refuse_rows_as_series(sheet: Sheet) -> None:
    first, *others = sheet.columns
    numbered = [each for each in others if re.fullmatch(r"\D*\d+", each.name)]
    if first.numbers is None and first.cells.is_unique and len(numbered) > max(30, sheet.rows):
        raise DataError(
            f"{sheet.path}: each row looks like a series by itself, without times; write a row for "
            "each time and series, or a column for each series"
        )


def _refuse_unread_times(sheet: Sheet, told: Told) -> None:
    """A column that a person would take for times is not to be lost."""
    for column in sheet.columns:
        named, name = told.time_column == column.name, column.name.strip().lower()
        sure = named or (name in SURE_NAMES and not counts_rows(column, ()))
        if column.missing == sheet.rows or not (named or told.time_column is None):
            continue
        texts = sheet.texts(column) if sure or column.numbers is None else column.cells.iloc[:0]
        some = texts.iloc[:SAMPLE].tolist()
        if not some or not (sure or looks_like_times(some)):
            continue
        forms = [told.time_format] if told.time_format else forms_of(some)
        bads = [np.flatnonzero(_tried(texts, form).times.isna().to_numpy()) for form in forms]
        row = next(iter(min(bads, key=len, default=[])), 0)
        raise DataError(
            f"{sheet.at(row, column)}: holds no times in a form that is known: "
            f"{excerpt(texts.iloc[row])!r}; say --time-format, or --time-column none"
        )


def _tried(texts: pd.Series[Any], form: str | None) -> Read:
    """What can be read in a form: nothing in one that cannot be used."""
    try:
        return read_form(texts, form)
    except ValueError:
        nothing = pd.Series(pd.NaT, index=texts.index)
        return Read(nothing, nothing, np.zeros(len(texts), dtype=np.bool_))


# Which columns hold the times, and how they are written.


def _candidates(sheet: Sheet, told: Told) -> list[When]:
    """Each way in which columns can be read as times."""
    if told.time_column == NONE:
        return []
    if told.time_column is not None:
        columns = _named(sheet, told.time_column, "--time-column")
        found = _joined(sheet, columns, told) or _parts_beside(sheet, columns, told)
        if not found:
            _refuse_unread_times(sheet, told)
            raise DataError(f"--time-column: {told.time_column!r} of {sheet.path} holds no times")
        return found
    single = {column: _joined(sheet, [column], told) for column in sheet.columns}
    parts = _parts(sheet).values()
    days = [column for column, found in single.items() if found and column not in parts]
    several = _parts_beside(sheet, days[:1], told)
    taken = {name for when in several for name in when.columns}
    alone = (found for column, found in single.items() if column.name not in taken)
    return [*several, *chain.from_iterable(alone)]


def _part(name: str) -> str | None:
    word = re.sub(r"[^a-zé_]+", "", name.strip().lower())
    return next((part for part, (*_, names) in PARTS.items() if word in names.split()), None)


def _parts(sheet: Sheet) -> dict[str, Column]:
    """The column that holds each part of a time, by the names of columns."""
    found: dict[str, Column] = {}
    for column in sheet.columns:
        part = _part(column.name)
        if part is not None and part not in found and column.is_whole:
            low, high, _ = PARTS[part]
            numbers = np.asarray(column.numbers)
            if low <= numbers.min() and numbers.max() <= high:
                found[part] = column
    return found


def _parts_beside(sheet: Sheet, first: Sequence[Column], told: Told) -> list[When]:
    """A day beside a time of day, or a year, a month and so on."""
    parts = _parts(sheet)
    days = [each for each in first if each not in parts.values()]
    order = ("%Y", "%q") if "%m" not in parts else ("%Y", "%m", "%d", "%H", "%M")
    if days:
        order = ("%H", "%M")
        for column in sheet.columns:
            texts = column.cells.dtype.kind != "M" and column.numbers is None
            if texts and column not in first and clock_form(sheet.texts(column).iloc[0]):
                return _joined(sheet, [days[0], column], told)
    columns = [*days[:1], *(parts[part] for part in takewhile(parts.__contains__, order))]
    return _joined(sheet, columns, told) if len(columns) > 1 or not days else []


def _joined(sheet: Sheet, columns: Sequence[Column], told: Told) -> list[When]:
    """The readings of one column, or of several side by side."""
    names = tuple(each.name for each in columns)
    if not columns:
        return []
    if len(columns) == 1 and columns[0].numbers is not None:
        if columns[0].missing or not columns[0].is_whole:
            return []
        low, high = columns[0].numbers.min(), columns[0].numbers.max()
        unix = any(946e6 * n <= low and high < 4e9 * n for n in (1, 1e3, 1e6, 1e9))
        if told.time_column is None and _time_rank(names[0]) >= len(NAMES) and not unix:
            return []
    parts = [c.cells if c.cells.dtype.kind == "M" else sheet.texts(c) for c in columns]
    texts = joined_times(parts)
    found: list[When] = []
    for form in _forms(columns, parts, told):
        read = _read(texts, form)
        if read is None:
            continue
        times, clock, dated = read
        if not (form and "%B" in form and any(np.array_equal(times, w.times) for w in found)):
            keys: dict[str, Any] = {"columns": names, "time_format": form, "texts": texts}
            found.append(When(times=times, clock=clock, has_offsets=dated, **keys))
    return found


def _forms(
    columns: Sequence[Column], parts: Sequence[pd.Series[Any]], told: Told
) -> Sequence[str | None]:
    """The forms that cells may have; of several columns side by side with blanks between."""
    if told.time_format is not None:
        return [None if told.time_format == ISO else told.time_format]
    if len(parts) == 1 and parts[0].dtype.kind == "M":
        return [None]
    some = [cells.iloc[:: max(1, len(cells) // SAMPLE)].tolist() for cells in parts]
    if len(columns) == 1:
        return forms_of([each for each in some[0] if each not in MISSING])
    beside: list[Sequence[str]] = []
    for column, cells in zip(columns, some, strict=True):
        part = None if column.numbers is None else _part(column.name)
        days = [form or "%Y-%m-%d" for form in forms_of(cells)]
        beside.append([part] if part else days or [clock_form(cells[0]) or ""])
    return [" ".join(each) for each in product(*beside)]


def _read(texts: pd.Series[str], form: str | None) -> tuple[Times, Times, bool] | None:
    """Times, what clocks showed, and whether they have offsets; None where too little is read."""
    for some in (texts.iloc[:SAMPLE], texts):
        found = _tried(some, form)
        if found.times.notna().mean() < ENOUGH:
            return None
    times, clock = (each.ffill().bfill().to_numpy("datetime64[us]") for each in found[:2])
    return times, clock, bool(found.dated.any())


def _time_rank(name: str) -> int:
    plain = name.strip().lower()
    if plain in NAMES:
        return NAMES.index(plain)
    return len(NAMES) + set(NAMES).isdisjoint(re.findall(r"[a-zà-ÿ]+", plain))


def _shown(sheet: Sheet, when: When, layout: Layout) -> str:
    rows = ", ".join(
        f"row {sheet.file.rows[at]} {when.texts.iloc[at]!r} is {pd.Timestamp(when.times[at])}"
        for at in (0, -1)
    )
    return f"{when.time_format or ISO} ({rows}; frequency {layout.fit.frequency})"


# Which rows belong to which series, in which zone, and at which frequency.


def _dated(sheet: Sheet, told: Told, when: When) -> Layout:
    """A reading of the times, with all that follows from it."""
    guesses: list[Guess] = []
    ids = _ids(sheet, told, when, guesses)
    groups = _groups(sheet, ids)
    longest = max(groups, key=len)
    timezone = _timezone(when, longest, told, guesses)
    times = when.times
    zone = None if when.has_offsets else timezone
    by_group = [_in_utc(times[mine], zone) for mine in groups]
    usual = fit(max(by_group, key=len), told.frequency)
    if when.has_offsets:  # local days, as the rows say
        days = fit(when.clock[longest], told.frequency)
        if days and days.step_us >= DAY and (usual is None or days.score >= usual.score):
            usual, times = days, when.clock
            by_group = [times[mine] for mine in groups]
    if usual is None:
        usual = Fit(frequency=told.frequency or COUNTED, score=0.0)
    if when.has_offsets and told.timezone is None and usual.step_us < DAY:
        timezone = timezone or "UTC"  # so that times without offsets are not taken for the same
    off, missing = [usual.off] if usual.rounded else [], usual.missing if usual.rounded else 0
    for mine, own in zip(groups, by_group, strict=True):
        if len(own) > 1 and not usual.rounded and ascends(own):
            one = fit_to(own, usual.frequency)
            missing += one.missing
            off.append(mine[one.off])
    return Layout(
        when=replace(when, times=times), ids=ids, timezone=timezone, groups=groups, fit=usual,
        off=np.concatenate(off) if off else usual.off, missing=missing, guesses=tuple(guesses),
        span_us=int((times.max() - times.min()).astype(np.int64)),
    )  # fmt: skip


def _named(sheet: Sheet, told: str | None, flag: str) -> list[Column]:
    """The columns that were named, one or several with commas between."""
    if told in (None, NONE):
        return []
    whole = told in [each.name for each in sheet.columns]
    names = [str(told)] if whole else [each.strip() for each in str(told).split(",")]
    return [sheet.column(name, flag) for name in names]


def _ids(sheet: Sheet, told: Told, when: When, guesses: list[Guess]) -> tuple[str, ...]:
    """The columns that tell series apart: with them no time stands twice; likeliest first."""
    if told.id_column is not None:
        return tuple(each.name for each in _named(sheet, told.id_column, "--id-column"))
    if not looks_long(when.times) or sheet.files > 1:
        return ()
    codes: dict[str, Positions] = {}
    for column in sheet.columns:
        named = column.is_whole and _id_rank(column.name) < len(ID_NAMES)
        could = (column.numbers is None or named) and column.cells.dtype.kind not in "Mb"
        if column.name in when.columns or not could:
            continue  # a column of whole numbers is more likely a target
        code, unique = pd.factorize(column.cells.fillna("").astype(object))
        if 1 < len(unique) <= len(code) // 3:
            codes[column.name] = code
    keys = pd.DataFrame(codes).assign(**{"": when.times})
    order = sorted(codes, key=lambda name: (_id_rank(name), int(codes[name].max())))
    for several in (1, 2, 3):
        found = [
            names
            for names in combinations(order[:8], several)
            if keys.duplicated(["", *names]).mean() < LONG
        ]
        if len(found) > 1 and several == 1:
            choices = tuple(names[0] for names in found)
            why = f"{', '.join(choices)} could tell the series apart"
            guesses.append(Guess("id_column", choices[0], why, (*choices, NONE)))
        if found:
            places = [each.name for each in sheet.columns]
            return tuple(sorted(found[0], key=places.index))
    return ()


def looks_long(times: Times) -> bool:
    """Whether times repeat, or go back, as those of several series do."""
    if ascends(times):
        return False
    steps = np.diff(times).astype(np.int64)
    went_back = bool((steps < -DAY).any() and (steps > 0).any())
    return went_back or len(np.unique(times)) <= (1 - LONG) * len(times)


def _groups(sheet: Sheet, ids: Sequence[str]) -> tuple[Positions, ...]:
    """Positions of each series' rows; all of them where there are no names."""
    if not ids:
        return (np.arange(sheet.rows),)
    names = joined_ids([sheet.column(name, "--id-column").cells for name in ids])
    return tuple(positions_of_each(names).values())


def _timezone(when: When, longest: Positions, told: Told, guesses: list[Guess]) -> str | None:
    if told.timezone is not None:
        if told.timezone != NONE and (problem := zone_problem(told.timezone)):
            raise UsageError(problem)
        return None if told.timezone == NONE else told.timezone
    local = when.clock[longest]
    if when.has_offsets:
        utc = when.times[longest]
        steps = fit(utc)
        if len(np.unique(local - utc)) == 1 or (steps and steps.step_us >= DAY):
            return None
        found = tuple(zone for zone in ZONES if np.array_equal(to_local(utc, zone), local))
        why = "the times' offsets are those of"
    else:
        found = zones_that_fit(local)
        why = "an hour is there twice or missing, as clocks change in"
    if not found:
        return None
    guesses.append(Guess("timezone", found[0], f"{why} {', '.join(found)}"))
    return found[0]


def zones_that_fit(local: Times) -> tuple[str, ...]:
    """Zones whose daylight saving explains a repeated hour in autumn, or a missing one in spring:
    those under which least is missing.
    """
    rising = ascends(local)
    before = fit(local)
    if before is None or (rising and before.score == 1) or before.step_us >= DAY:
        return ()
    found = {}
    for zone in ZONES:
        with suppress(DataError):
            times = _in_utc(local, zone)
            after = fit_to(times, before.frequency) if ascends(times) else None
            if after and not len(after.off) and (not rising or after.missing < before.missing):
                found[zone] = after.missing
    return tuple(zone for zone, missing in found.items() if missing == min(found.values()))


def _in_utc(local: Times, zone: str | None) -> Times:
    if zone is None:
        return local
    where = TimeColumn(source=FileSource(path=Path(), timezone=zone))
    return to_utc(local, range(1, len(local) + 1), where)


def _id_rank(name: str) -> int:
    """How likely it names an id: the less, the likelier; the number of names where it does not."""
    words = re.findall(r"[a-z_]+", name.strip().lower())
    ranks = [ID_NAMES.index(each) for each in words if each in ID_NAMES]
    return min(ranks, default=len(ID_NAMES) - "".join(words).endswith("id"))


def counts_rows(column: Column, groups: Sequence[Positions]) -> bool:
    """Whether a column only counts the rows, of all series or of each, in whatever steps. A data
    frame's index may have lost some rows. `groups` are the positions of each series' rows.
    """
    numbers = column.numbers
    if numbers is None or len(numbers) < 3:  # noqa: PLR2004 - two numbers are no row
        return False
    several = groups if len(groups) > 1 else ()
    steps = [np.diff(numbers), *(np.diff(numbers[each]) for each in several)]
    own, nameless = np.concatenate(steps[1:] or steps), column.name in NAMELESS
    even = any(len(each) and each[0] != 0 and (each == each[0]).all() for each in (steps[0], own))
    return even or (nameless and column.is_whole and bool((own > 0).all()))
