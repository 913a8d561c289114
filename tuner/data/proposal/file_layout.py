"""When the rows of a sheet were, and of which series: times, ids, zone and frequency."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np

from tuner.data.local_time import to_utc
from tuner.data.proposal.groups import (
    Positions,
    clock_column,
    groups_of,
    id_columns,
    looks_long,
    names_in,
    zones_that_fit,
)
from tuner.data.proposal.rhythm import DAY, Rhythm, rhythm_at, rhythm_of, step_of
from tuner.data.proposal.sheet import Sheet
from tuner.data.proposal.told import NONE, Guess, Told
from tuner.data.proposal.when import ISO, When, read_times, times_in
from tuner.data.times import TimeColumn, Times, frequency_problem
from tuner.errors import DataError, UsageError

COUNTED = "D"
"""The frequency of rows that nobody dated, where none is said."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """What was found; `when` is None for an index."""

    when: When | None
    id_column: str | None
    timezone: str | None
    groups: tuple[Positions, ...]
    frequency: str
    step_us: int
    regular: bool
    missing: int
    rows: int
    span_us: int
    guesses: tuple[Guess, ...]

    @property
    def series(self) -> int:
        """How many there are."""
        return len(self.groups)

    @property
    def shortest(self) -> int:
        """Rows of the shortest series."""
        return min(map(len, self.groups))

    @property
    def within_a_day(self) -> bool:
        """Whether a step is shorter than a day."""
        return self.step_us < DAY


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
        frequency = told.frequency or COUNTED
        if told.frequency is None:
            guesses.append(_of_frequency())
        return Layout(
            when=None, id_column=id_column, timezone=None, groups=groups, frequency=frequency,
            step_us=step_of(frequency), regular=True, missing=0, rows=sheet.rows, span_us=0,
            guesses=tuple(guesses),
        )  # fmt: skip
    longest = max(groups, key=len)
    timezone = _timezone(when, when.times[longest], told, guesses)
    by_group = [_dated(when.times[positions], timezone, when) for positions in groups]
    rhythm = _rhythm(when.times[longest] if timezone is None else max(by_group, key=len), told)
    fits = [rhythm_at(times, rhythm.frequency) for times in by_group if _ascends(times)]
    first, last = when.times.min(), when.times.max()
    return Layout(
        when=when, id_column=id_column, timezone=timezone, groups=groups,
        frequency=rhythm.frequency, step_us=rhythm.step_us,
        regular=all(each.regular for each in fits), missing=sum(each.missing for each in fits),
        rows=sheet.rows, span_us=int((last - first).astype(np.int64)), guesses=tuple(guesses),
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


def _of_frequency() -> Guess:
    return Guess(
        key="frequency",
        value=COUNTED,
        question="How far apart are two rows (h, 15min, D, B, W, MS, ...)?",
        why="nothing says how far apart two rows are",
    )


def _rhythm(times: Times, told: Told) -> Rhythm:
    """Where times do not ascend there is none: the reader of the file says where."""
    if told.frequency is not None:
        step = step_of(told.frequency)
        return Rhythm(frequency=told.frequency, missing=0, regular=True, step_us=step)
    found = rhythm_of(times) or rhythm_of(np.unique(times))
    return found or Rhythm(frequency=COUNTED, missing=0, regular=True, step_us=DAY)


def _dated(local: Times, zone: str | None, when: When) -> Times:
    if zone is None or when.has_offsets:
        return local
    where = TimeColumn(file="", column=when.column, time_format=None, wide=True, zone=zone)
    return to_utc(local, range(1, len(local) + 1), zone, where)


def _ascends(times: Times) -> bool:
    return bool((np.diff(times).astype(np.int64) > 0).all())
