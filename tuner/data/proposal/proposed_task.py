"""A task for a file: what the file shows, what was said of it, and guesses for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tuner.data.calendars import DAY, SECOND, season_rows
from tuner.data.dialect import as_numbers
from tuner.data.open_file import OpenFile
from tuner.data.proposal.file_layout import Layout, counts_rows, layout_of
from tuner.data.proposal.sheet import NONE, Column, Guess, Sheet, Told
from tuner.data.source_kinds import HOW_WRITTEN
from tuner.data.splits import split_sizes
from tuner.data.task import BUILT_IN, named_twice
from tuner.errors import DataError, UsageError
from tuner.files.plain import excerpt

# How far to look back and ahead, and which cycles of the calendar, by frequency and length.


SPLIT = (0.6, 0.2, 0.2)
YEAR_US = 366 * DAY
MOST = 0.9
"""The share of rows that are in series long enough: a few short ones shorten no window."""
MOST_NAMED = 3
ORIGINS = 4
"""Horizons that the shortest split should hold after the first input: one forecast is no test."""
_USUAL = ((360, (12, 3)), (80, (16, 4)), (27, (36, 12)), (6, (52, 8)), (1, (56, 14)))
"""By the days of a step: years, quarters, months, weeks, days; rows of input and of horizon."""


class Sizes(NamedTuple):
    """Rows that are seen and rows that are forecast; `shortened` where the file was too short for
    what is usual.
    """

    input_size: int
    horizon: int
    shortened: bool


def usual_sizes(frequency: str, step_us: int) -> tuple[int, int]:
    """Rows of input and horizon that people use at a frequency: a week for a day, and the like."""
    if frequency == "B":
        return 60, 10
    for at_least_days, rows in _USUAL:
        if step_us >= at_least_days * DAY:
            return rows
    a_day = max(2, min(96, season_rows(frequency) or round(DAY / step_us)))
    return 7 * a_day, a_day


def sizes_for(
    shortest: int, usual: tuple[int, int], told: Told, *, name: str, known_ahead: int = 0
) -> Sizes:
    """What is usual, as long as a split of `shortest` rows holds an input and some horizons; what
    was asked for stays as it is.

    Raises:
        DataError: the series, called `name`, is too short for any.
    """
    input_size, horizon = told.input_size, told.horizon
    ahead = horizon or min(usual[1], known_ahead or usual[1])
    while horizon is None and ahead > 1 and (2 + ORIGINS) * ahead > shortest:
        ahead //= 2
    look = input_size or min(usual[0], max(2, shortest - ORIGINS * ahead))
    if look + ahead > shortest and input_size is None and horizon is None:
        raise DataError(f"{name}: {shortest} rows in a split are too few for any window; give more")
    wanted = horizon or known_ahead or usual[1]
    return Sizes(look, ahead, look < (input_size or usual[0]) or ahead < wanted)


def calendar_for(step_us: int, span_us: int) -> tuple[str, ...]:
    """Cycles that repeat within the file and are longer than a step, shortest first."""
    cycles = {
        "minute": step_us < 3600 * SECOND,
        "hour": step_us < DAY,
        "day_of_week": step_us <= DAY and span_us >= 14 * DAY,
        "quarter" if step_us >= 80 * DAY else "month": step_us < 360 * DAY and span_us >= YEAR_US,
    }
    return tuple(name for name, there in cycles.items() if there)


MOST_EMPTY = 0.2
"""The share of empty cells above which a column is left out, unless it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The values of a task file, and what is to be said of them."""

    name: str
    file: OpenFile
    """What was looked at."""
    source: Mapping[str, Any]
    targets: tuple[str, ...]
    past: tuple[str, ...]
    future: tuple[str, ...]
    frequency: str
    sizes: Sizes
    calendar: tuple[str, ...]
    static_id: bool
    rows: int
    series: int
    guesses: tuple[Guess, ...]
    left_out: tuple[str, ...]
    """Columns that are not used, each with the reason."""
    bounds: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)
    """What targets are never below, and maybe never above."""
    notes: tuple[str, ...] = ()
    """What else was taken from the file, in a line each."""


def propose(sheet: Sheet, told: Told, name: str) -> Proposal:
    """A task called `name` for the file that `sheet` was read from; its path is `sheet.path`.

    Raises:
        DataError: the file holds nothing to forecast, or too little of it, or not what was said.
        UsageError: what was said names a column that is not there.
    """
    layout = layout_of(sheet, told)
    guesses = [*_of_sheet(sheet), *layout.guesses]
    chosen, left_out = _columns(sheet, layout, told)
    tail, ahead = _known_ahead(chosen, layout) if told.targets is None else (0, [])
    past = [each for each in chosen if each.is_yes_or_no and each not in ahead]
    targets = [each for each in chosen if each not in (*past, *ahead)]
    if told.targets is not None or not targets:
        targets, past = chosen, []
    cells = sum(column.missing for column in chosen) - tail * (len(chosen) - len(ahead))
    gaps = told.gaps
    if gaps is None:
        found = _gaps(sheet, layout, cells)
        guesses += [found] if found else []
        gaps = found.value if found else "refuse"
    if gaps == "skip" and told.targets is None:
        empty = [c for c in chosen if c.missing > tail * (c not in ahead)]
        left_out += [f"{c.name}: {c.missing:,} empty cells" for c in empty]
        targets, past, ahead = (
            [column for column in part if column not in empty] for part in (targets, past, ahead)
        )
    if not targets:
        why = excerpt("; ".join(left_out[:5]) or "it has one column, of times", at_most=300)
        raise DataError(f"{sheet.path}: has no column of numbers to forecast ({why}); correct one")
    bounds = {c.name: ends for c in targets if (ends := _bounds_of(c)) is not None}
    guesses += _of_bounds(bounds, told)
    made_up = layout.missing if gaps == "fill" and layout.series == 1 else 0
    lengths = sorted(map(len, layout.groups), reverse=True)
    enough = next(n for n in range(len(lengths)) if sum(lengths[: n + 1]) >= MOST * sheet.rows)
    usual = usual_sizes(layout.fit.frequency, layout.fit.step_us)
    name_of = str(sheet.path) if layout.series == 1 else f"{sheet.path}: its shortest series"
    shortest, runs = lengths[enough] + made_up - tail, None
    if sheet.files > 1:
        runs = "by_file" if min(split_sizes(sheet.files, SPLIT)) else "by_time"
    if runs != "by_file":
        shortest = min(split_sizes(shortest, SPLIT))
    sizes = sizes_for(shortest, usual, told, name=name_of, known_ahead=tail)
    window = sizes.input_size + sizes.horizon
    short = [n for n in lengths if layout.series > 1 and min(split_sizes(n, SPLIT)) < window]
    source = _source(sheet, layout, gaps, short=bool(short), runs=runs)
    notes = [*_of_reading(sheet, layout, source, short)]
    notes += [f"left out: {reason}" for reason in left_out]
    notes += [f"{column.name}: {column.says}" for column in chosen if column.says]
    notes += [f"{c.name}: says yes or no: a covariate known up to now, 1 and 0" for c in past]
    notes += [f"{c.name}: known ahead, in the last {tail:,} rows: a covariate" for c in ahead]
    return Proposal(
        name=name,
        file=sheet.file,
        source=source,
        targets=tuple(column.name for column in targets),
        past=tuple(column.name for column in past),
        future=tuple(column.name for column in ahead),
        frequency=layout.fit.frequency,
        sizes=sizes,
        calendar=calendar_for(layout.fit.step_us, layout.span_us) if layout.when else (),
        static_id=layout.series > 1,
        rows=sheet.rows,
        series=layout.series - len(short),
        guesses=tuple(guesses),
        left_out=tuple(left_out),
        bounds={} if told.bounds == "no" else bounds,
        notes=tuple(notes),
    )


def task_name(path: Path) -> str:
    """What a task on this file is called: like the file, as far as names go."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).strip("-._")[:56] or "mine"
    plain = plain if plain[0].isalnum() else f"data-{plain}"
    return f"{plain}-own" if plain in BUILT_IN else plain


def _of_sheet(sheet: Sheet) -> Iterator[Guess]:
    found = sheet.found
    if found is not None and not found.header_is_sure:
        value = "yes" if found.source.header else "no"
        yield Guess("header", value, "the first row could be a header or data", ("yes", "no"))
    if found is not None and found.other_marks is not None:
        marks = found.source.marks, found.other_marks
        choices = marks[0][0], marks[1][0]
        why = "the marks in the numbers could be decimals or thousands"
        readings = tuple(_read_with(sheet, *each) for each in marks)
        yield Guess("decimal", choices[0], why, choices, readings)


def _read_with(sheet: Sheet, decimal: str, thousands: str | None) -> str:
    for column in sheet.columns:
        texts = [each for each in sheet.texts(column).tolist() if re.search(r"\d[.,]\d{3}$", each)]
        if texts and column.numbers is not None:
            ends = pd.Series([texts[0], texts[-1]])
            first, last = as_numbers(ends, decimal, thousands)[0]
            return f"{decimal} ({texts[0]!r} is {first:,.10g}, {texts[-1]!r} is {last:,.10g})"
    return decimal


def _gaps(sheet: Sheet, layout: Layout, cells: int) -> Guess | None:
    """What to do about what is missing; None where nothing is."""
    counts = ((layout.missing, "rows are missing"), (cells, "cells are empty"))
    what = ", ".join(f"{number:,} {words}" for number, words in counts if number)
    made_up = layout.missing > sheet.rows or (layout.fit.step_us >= DAY and not cells)
    value = "skip" if layout.when and made_up else "fill"
    if layout.when and len(layout.off):
        times, lines, some = layout.when.times, sheet.file.rows, layout.off[:MOST_NAMED]
        shown = ", ".join(f"row {lines[at]} ({pd.Timestamp(times[at])})" for at in some)
        value, frequency = "skip", layout.fit.frequency
        what = f"{len(layout.off):,} times are not of frequency {frequency!r}, such as {shown}"
    choices = ("fill", "skip", "refuse") if layout.when else ("fill", "refuse")
    return Guess("gaps", value, what, choices) if what else None


def _of_reading(
    sheet: Sheet, layout: Layout, source: Mapping[str, Any], short: Sequence[int]
) -> Iterator[str]:
    """How the file is read, where it is not as files usually are."""
    if written := {k: v for k, v in source.items() if k in HOW_WRITTEN or isinstance(v, list)}:
        yield "read with " + "; ".join(f"{key} = {value!r}" for key, value in written.items())
    if sheet.files > 1:
        yield f"{sheet.files:,} files, each a run by itself, read as {sheet.path} is"
    if layout.fit.rounded:
        yield f"times are rounded to frequency {layout.fit.frequency!r}: rows are late"
    if short:
        few = f"{len(short):,} of {layout.series:,} series are too short for a window"
        yield f"{few} (the shortest has {short[-1]:,} rows) and are left out"


NEAR_ZERO, OFTEN = 0.02, 0.05
"""Of a column's largest value, and of its rows: one that is never below 0, and is 0 at times or so
near to it so often, stays there."""
RANGES = (1.0, 100.0)
"""A share, and one in per cent, where the largest value is just that."""


def _bounds_of(column: Column) -> tuple[float, float | None] | None:
    """0 for what is never negative, with the upper end of a share; None for what is neither."""
    numbers = np.asarray(column.numbers)
    low, high, often = map(float, np.nanquantile(numbers, (0, 1, OFTEN)))
    if high <= 0 or low < 0 or (low > 0 and often > NEAR_ZERO * high):
        return None
    return 0.0, high if high in RANGES else None


def _of_bounds(bounds: Mapping[str, tuple[float, float | None]], told: Told) -> Iterator[Guess]:
    if bounds and told.bounds is None:
        named = excerpt(", ".join(bounds), at_most=120)
        yield Guess("bounds", "yes", f"{named}: never negative, or a share", ("yes", "no"))


def _columns(sheet: Sheet, layout: Layout, told: Told) -> tuple[list[Column], list[str]]:
    """The columns to use, and why others are not."""
    keys = [*layout.ids, *(layout.when.columns if layout.when else ())]
    if told.targets is not None:
        if problem := named_twice(told.targets, keys):
            raise UsageError(f"--targets: {problem}")
        return [_asked(sheet, name) for name in told.targets], []
    others = [column for column in sheet.columns if column.name not in keys]
    reasons = {column: _why_not(sheet, column, layout) for column in others}
    chosen = [column for column, reason in reasons.items() if reason is None]
    left = [f"{column.name}: {reason}" for column, reason in reasons.items() if reason]
    if sheet.unnamed:
        left.append(f"{sheet.unnamed} columns: others have the same name; rename them")
    return chosen, left


def _known_ahead(columns: Sequence[Column], layout: Layout) -> tuple[int, list[Column]]:
    """How many rows at the end have values in some columns only, and these columns."""
    if not columns or layout.series > 1:
        return 0, []
    known = np.isfinite(np.column_stack([np.asarray(each.numbers) for each in columns]))
    empty = np.argmax(known[::-1], axis=0).tolist()
    tail = min(filter(None, empty), default=0)
    ahead = [column for column, rows in zip(columns, empty, strict=True) if not rows]
    if not 0 < tail <= len(known) // 5 or 2 * len(ahead) > len(columns):
        return 0, []  # that one column ends before the others is a gap
    return tail, ahead


def _asked(sheet: Sheet, name: str) -> Column:
    column = sheet.column(name, "--targets")
    if column.stray is not None:
        _refuse_stray(sheet, column)
    if column.numbers is None:
        raise DataError(f"--targets: {name!r} of {sheet.path} is not all numbers; leave it out")
    return column


def _refuse_stray(sheet: Sheet, column: Column) -> None:
    """A column of numbers is not to be lost for one cell."""
    at = int(column.stray or 0)
    raise DataError(
        f"{sheet.at(at, column)}: {excerpt(str(column.cells.iloc[at]))!r} is not a finite number, "
        "and most cells are; correct it, or name the columns to forecast with --targets"
    )


def _why_not(sheet: Sheet, column: Column, layout: Layout) -> str | None:
    if column.stray is not None:
        _refuse_stray(sheet, column)
    if column.numbers is None:
        if column.cells.dtype.kind == "M":
            return "times"
        return "empty" if column.missing == len(column.cells) else "not numbers"
    firsts = [int(positions[0]) for positions in layout.groups]
    clock = pd.DatetimeIndex(layout.when.clock) if layout.when else None
    reasons = (
        (counts_rows(column, layout.groups), "counts the rows"),
        (np.nanmin(column.numbers) == np.nanmax(column.numbers), "constant"),
        (not column.name.isprintable(), "its name holds a control character"),
        (column.missing > MOST_EMPTY * len(column.numbers), f"{column.missing:,} empty cells"),
        (bool(np.isnan(column.numbers[firsts]).any()), "empty in the first row of a series"),
        (
            clock is not None and column.is_whole and _is_of_calendar(column, clock),
            "says what the calendar says",
        ),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _is_of_calendar(column: Column, clock: pd.DatetimeIndex) -> bool:
    cycles = (clock.year, clock.quarter, clock.month, clock.day, clock.day_of_week, clock.hour)
    if not re.search(r"year|quarter|month|day|hour|jahr|monat|tag|stunde", column.name.lower()):
        return False
    numbers = np.asarray(column.numbers)
    return any(np.array_equal(numbers, each + more) for each in cycles for more in (0, 1))


def _source(
    sheet: Sheet, layout: Layout, gaps: str, *, short: bool, runs: str | None
) -> dict[str, Any]:
    """The keys of [source] but the path, those that are as usual left out."""
    times, when = None, layout.when
    if when is not None:
        times = when.columns[0] if len(when.columns) == 1 else when.columns
    found = {
        "index": when is None,
        "time_column": times,
        "time_format": (when and when.time_format) or sheet.source.time_format,
        "id_column": (layout.ids[0] if len(layout.ids) == 1 else layout.ids) or None,
        "timezone": None if layout.timezone == NONE else layout.timezone,
        "round_times": layout.fit.rounded,
        "short_series": "leave out" if short else "refuse",
        "gaps": gaps,
        "runs": runs,
    }
    plain = sheet.source.model_copy(update=found).noted()
    del plain["path"]
    return plain
