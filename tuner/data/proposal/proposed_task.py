"""A task for a file: what the file shows, what was said of it, and guesses for the rest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.data.prepare import split_sizes
from tuner.data.proposal.file_layout import (
    DAY,
    NONE,
    SECOND,
    Guess,
    Layout,
    Positions,
    Told,
    counts_rows,
    layout_of,
)
from tuner.data.proposal.sheet import Column, Sheet
from tuner.data.task import named_once
from tuner.display.text import command_line, shown
from tuner.errors import DataError, UsageError, unknown_name
from tuner.files.plain import excerpt
from tuner.files.toml_file import toml_value

# How far to look back and ahead, and which cycles of the calendar, by frequency and length.


SPLIT = (0.6, 0.2, 0.2)
YEAR_US = 366 * DAY
ORIGINS = 4
"""Horizons that the shortest split should hold after the first input: one forecast is no test."""
LEAST_INPUT = 2
MOST_OF_A_DAY = 96
BUSINESS = "B"
_USUAL = ((360, (12, 3)), (80, (16, 4)), (27, (36, 12)), (6, (52, 8)), (1, (56, 14)))
"""By the days of a step: years, quarters, months, weeks, days; rows of input and of horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Rows that are seen and rows that are forecast; `shortened` where the file was too short for
    what is usual.
    """

    input_size: int
    horizon: int
    shortened: bool


def usual_sizes(frequency: str, step_us: int) -> tuple[int, int]:
    """Rows of input and horizon that people use at a frequency: a week for a day, and the like."""
    if frequency == BUSINESS:
        return 60, 10
    for at_least_days, rows in _USUAL:
        if step_us >= at_least_days * DAY:
            return rows
    a_day = max(2, min(MOST_OF_A_DAY, round(DAY / step_us)))
    return 7 * a_day, a_day


def sizes_for(
    rows: int,
    usual: tuple[int, int],
    *,
    input_size: int | None,
    horizon: int | None,
    name: str,
) -> Sizes:
    """What is usual, as long as the shortest split of `rows` rows holds an input and some horizons;
    what was asked for stays as it is.

    Raises:
        DataError: the series, called `name`, is too short for any.
    """
    shortest = min(split_sizes(rows, SPLIT))
    ahead = horizon or usual[1]
    while horizon is None and ahead > 1 and (2 + ORIGINS) * ahead > shortest:
        ahead //= 2
    look = input_size or min(usual[0], max(LEAST_INPUT, shortest - ORIGINS * ahead))
    if look + ahead > shortest and input_size is None and horizon is None:
        raise DataError(
            f"{name} has {rows} rows, and its shortest split {shortest}: too few for any window; "
            "give more rows"
        )
    return Sizes(
        input_size=look,
        horizon=ahead,
        shortened=look < (input_size or usual[0]) or ahead < (horizon or usual[1]),
    )


def calendar_for(step_us: int, span_us: int) -> tuple[str, ...]:
    """Cycles that repeat within the file and are longer than a step, shortest first."""
    found = []
    if step_us < 3600 * SECOND:
        found.append("minute")
    if step_us < DAY:
        found.append("hour")
    if step_us <= DAY and span_us >= 14 * DAY:
        found.append("day_of_week")
    if span_us >= YEAR_US:
        found.append("quarter" if step_us >= 80 * DAY else "month")
    return () if step_us >= 360 * DAY else tuple(found)


MOST_EMPTY = 0.2
"""The share of empty cells above which a column is left out, unless it is asked for."""
BUILT_IN = ("demo", "etth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The values of a task file, and what is to be said of them."""

    name: str
    source: Mapping[str, Any]
    targets: tuple[str, ...]
    frequency: str
    sizes: Sizes
    calendar: tuple[str, ...]
    static_id: bool
    rows: int
    series: int
    guesses: tuple[Guess, ...]
    left_out: tuple[str, ...]
    """Columns that are no targets, each with the reason."""


def propose(sheet: Sheet, told: Told, name: str) -> Proposal:
    """A task called `name` for the file that `sheet` was read from; its path is `sheet.path`.

    Raises:
        DataError: the file holds nothing to forecast, or too little of it, or not what was said.
        UsageError: what was said names a column that is not there.
    """
    layout = layout_of(sheet, told)
    guesses = [*_of_header(sheet), *layout.guesses]
    targets, left_out = _targets(sheet, layout, told)
    cells = sum(column.missing for column in targets)
    gaps = told.gaps
    if gaps is None:
        found = _gaps(layout, cells)
        guesses += [found] if found else []
        gaps = found.value if found else "refuse"
    if gaps == "skip" and told.targets is None:
        left_out += [f"{c.name}: {c.missing:,} empty cells" for c in targets if c.missing]
        targets = [column for column in targets if not column.missing]
    if not targets:
        raise DataError(_nothing_to_forecast(sheet, left_out))
    made_up = layout.rhythm.missing if gaps == "fill" and layout.series == 1 else 0
    sizes = sizes_for(
        layout.shortest + made_up,
        usual_sizes(layout.rhythm.frequency, layout.rhythm.step_us),
        input_size=told.input_size,
        horizon=told.horizon,
        name=str(sheet.path) if layout.series == 1 else f"{sheet.path}: its shortest series",
    )
    return Proposal(
        name=name,
        source=_source(sheet, layout, gaps),
        targets=tuple(column.name for column in targets),
        frequency=layout.rhythm.frequency,
        sizes=sizes,
        calendar=calendar_for(layout.rhythm.step_us, layout.span_us) if layout.when else (),
        static_id=layout.id_column is not None,
        rows=sheet.rows,
        series=layout.series,
        guesses=tuple(guesses),
        left_out=tuple(left_out),
    )


def task_name(path: Path) -> str:
    """What a task on this file is called: like the file, as far as names go."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).strip("-._")[:56] or "mine"
    plain = plain if plain[0].isalnum() else f"data-{plain}"
    return f"{plain}-own" if plain in BUILT_IN else plain


def _of_header(sheet: Sheet) -> list[Guess]:
    if sheet.header_is_sure:
        return []
    value = "yes" if sheet.written.get("header", True) else "no"
    return [
        Guess(
            key="header",
            value=value,
            question="Is the first row a header, with the columns' names?",
            why="the first row could be a header or data",
            choices=("yes", "no"),
        )
    ]


def _gaps(layout: Layout, cells: int) -> Guess | None:
    """What to do about what is missing; None where nothing is."""
    rhythm = layout.rhythm
    choices = ("fill", "skip", "refuse") if layout.when else ("fill", "refuse")
    if not rhythm.regular:
        value, what = "skip", f"times are not all {rhythm.frequency!r} apart"
    elif not rhythm.missing and not cells:
        return None
    else:
        counts = ((rhythm.missing, "rows are missing"), (cells, "cells are empty"))
        what = ", ".join(f"{number:,} {words}" for number, words in counts if number)
        made_up = rhythm.missing > layout.rows or (rhythm.step_us >= DAY and not cells)
        value = "skip" if layout.when and made_up else "fill"
    return Guess(
        key="gaps",
        value=value,
        question=f"{what}: fill them, skip them (rows count as consecutive), or refuse the file?",
        why=what,
        choices=choices,
    )


def _targets(sheet: Sheet, layout: Layout, told: Told) -> tuple[list[Column], list[str]]:
    """The columns to forecast, and why others are none."""
    keys = {layout.id_column, layout.when.column if layout.when else None}
    if told.targets is not None:
        try:
            named_once(told.targets, [key for key in keys if key])
        except ValueError as error:
            raise UsageError(f"--targets: {error}") from None
        return [_asked(sheet, name) for name in told.targets], []
    chosen: list[Column] = []
    left: list[str] = []
    for column in sheet.columns:
        if column.name in keys:
            continue
        reason = _why_not(column, layout.groups)
        if reason is None:
            chosen.append(column)
        else:
            left.append(f"{column.name}: {reason}")
    if sheet.unnamed:
        left.append(f"{sheet.unnamed} columns: others have the same name; rename them")
    return chosen, left


def _asked(sheet: Sheet, name: str) -> Column:
    column = next((each for each in sheet.columns if each.name == name), None)
    if column is None:
        raise unknown_name("column of --targets", name, [each.name for each in sheet.columns])
    if column.numbers is None:
        raise DataError(
            f"--targets: column {name!r} of {sheet.path} is not all numbers; correct it"
        )
    return column


def _why_not(column: Column, groups: Sequence[Positions]) -> str | None:
    if column.numbers is None:
        if column.times is not None:
            return "times"
        return "empty" if column.missing == len(column.texts or ()) else "not numbers"
    firsts = [int(positions[0]) for positions in groups]
    reasons = (
        (counts_rows(column, groups), "counts the rows (Unix time is no time here: write dates)"),
        (column.is_constant, "constant"),
        (not column.name.isprintable(), "its name holds a control character"),
        (column.missing > MOST_EMPTY * len(column.numbers), f"{column.missing:,} empty cells"),
        (bool(np.isnan(column.numbers[firsts]).any()), "empty in the first row of a series"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _source(sheet: Sheet, layout: Layout, gaps: str) -> dict[str, Any]:
    """The keys of [source] but the path, those that are as usual left out."""
    source: dict[str, Any] = {"kind": sheet.kind}
    if layout.when is None:
        source["index"] = True
    else:
        source["time_column"] = layout.when.column
        if layout.when.time_format is not None:
            source["time_format"] = layout.when.time_format
    if layout.id_column is not None:
        source["id_column"] = layout.id_column
    if layout.timezone not in (None, NONE):
        source["timezone"] = layout.timezone
    if gaps != "refuse":
        source["gaps"] = gaps
    return source | dict(sheet.written)


def _nothing_to_forecast(sheet: Sheet, left_out: list[str]) -> str:
    why = "; ".join(left_out[:5]) or "it has one column, of times"
    return (
        f"{sheet.path}: has no column of numbers to forecast ({excerpt(why, at_most=300)}); "
        "correct one, or name another file"
    )


# A task file as text, written for a person to change.


WIDTH = 96
MOST_SHOWN = 12
"""Columns that a comment names."""

_OF_GAPS = {
    "fill": "missing rows and empty cells get the value before (or fill = 'interpolate')",
    "skip": "the rows that are there count as consecutive, whatever lies between them",
    "refuse": "a missing row is an error",
}


def next_commands(path: Path) -> tuple[str, ...]:
    """What to type when the file is there."""
    return (
        command_line(["tuner", "data", "check", str(path)]),
        command_line(["tuner", "launch", "--variant", "original", "--task", str(path)]),
    )


def task_text(proposal: Proposal, file: Path, path: Path) -> str:
    """The whole task file.

    Args:
        proposal: what it says.
        file: the data, as it was named.
        path: where the task file will lie, as it was named.
    """
    lines = [
        *_head(proposal, file),
        *_target_lines(proposal),
        *_windows(proposal),
        *_calendar(proposal),
        *_covariates(),
        *_source_lines(proposal, file, path),
        "# Next: look at the data, then search.",
        *(f"#   {shown(command)}" for command in next_commands(path)),
    ]
    return "\n".join(lines) + "\n"


def _head(proposal: Proposal, file: Path) -> Iterator[str]:
    series = f", {proposal.series:,} series" if proposal.series > 1 else ""
    yield f"# What is to be forecast from {shown(file.name)}: {proposal.rows:,} rows{series}."
    yield "# Proposed from the file: change what you know better."
    yield ""
    yield f"name = {toml_value(proposal.name)}"
    yield ""


def _target_lines(proposal: Proposal) -> Iterator[str]:
    yield "# The columns to forecast."
    yield from _wrapped("target_columns", proposal.targets)
    for reason in proposal.left_out[:MOST_SHOWN]:
        yield f"# left out: {excerpt(reason, at_most=120)}"
    if len(proposal.left_out) > MOST_SHOWN:
        yield f"# left out: {len(proposal.left_out) - MOST_SHOWN} more columns"
    if len(proposal.targets) > 1:
        yield "# A column that moves by large numbers outweighs others where nothing is scaled."
        yield '# objective = "scaled"   # each in units of its own usual change'
    yield ""


def _wrapped(key: str, names: tuple[str, ...]) -> Iterator[str]:
    whole = f"{key} = {toml_value(list(names))}"
    if len(whole) <= WIDTH:
        yield whole
        return
    yield f"{key} = ["
    line = "   "
    for name in names:
        word = f" {toml_value(name)},"
        if len(line) + len(word) > WIDTH:
            yield line
            line = "   "
        line += word
    yield line
    yield "]"


def _windows(proposal: Proposal) -> Iterator[str]:
    yield from _guessed(proposal, "frequency")
    yield f"frequency = {toml_value(proposal.frequency)}"
    if proposal.sizes.shortened:
        yield "# Shorter than usual at this frequency: each split must hold some windows."
    yield f"input_size = {proposal.sizes.input_size}   # rows the model sees"
    yield f"horizon = {proposal.sizes.horizon}   # rows it forecasts"
    split = ", ".join(map(str, SPLIT))
    yield f"split = [{split}]   # training, validation, test: fractions of the rows, in time order"
    yield ""


def _calendar(proposal: Proposal) -> Iterator[str]:
    if proposal.source.get("index"):
        yield "# Cycles of the calendar need dates: set start below, then for example"
        yield '# calendar = ["day_of_week", "month"]'
    else:
        yield "# Known ahead: where in the day, the week or the year a row is."
        yield f"calendar = {toml_value(list(proposal.calendar))}"
    if proposal.static_id:
        yield "# The model is told which series a window comes from."
        yield "static_id = true"
        yield '# objective_series = "..."   # without it: the mean over all series'
    yield ""


def _covariates() -> Iterator[str]:
    yield "# Columns that help and are not forecast; each column has one role."
    yield "# past_covariates = []     # known only up to now"
    yield "# future_covariates = []   # known over the horizon too"
    yield ""


def _source_lines(proposal: Proposal, file: Path, path: Path) -> Iterator[str]:
    beside = os.path.relpath(file.expanduser().resolve(), path.parent.resolve())
    source = dict(proposal.source)
    yield "[source]"
    yield f"kind = {toml_value(source.pop('kind'))}"
    yield f"path = {toml_value(Path(beside).as_posix())}   # relative to this file"
    for key, value in source.items():
        yield from _guessed(proposal, key)
        if key == "gaps":
            yield f"# {_OF_GAPS[value]}"
        yield f"{key} = {toml_value(value)}"
    lines = {*source, "frequency", *(["time_column"] if source.get("index") else [])}
    for guess in proposal.guesses:  # those whose answer is the usual one, and has no line
        if guess.key not in lines:
            yield f"# A guess: {excerpt(guess.why, at_most=160)}."
    if source.get("index"):
        yield '# start = "1990-01-01"   # the date of the first row'
    yield ""


def _guessed(proposal: Proposal, key: str) -> Iterator[str]:
    keys = {key, "time_column"} if key == "index" else {key}
    for guess in proposal.guesses:
        if guess.key in keys:
            yield f"# A guess: {excerpt(guess.why, at_most=160)}."
