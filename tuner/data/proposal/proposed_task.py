"""A task for a file: what the file shows, what was said of it, and guesses for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.data.proposal.file_layout import Layout, layout_of
from tuner.data.proposal.groups import Positions, counts_rows
from tuner.data.proposal.sheet import Column, Sheet
from tuner.data.proposal.sizes import Sizes, calendar_for, sizes_for, usual_sizes
from tuner.data.proposal.told import NONE, Guess, Told
from tuner.data.task_checks import named_once
from tuner.errors import DataError, UsageError, unknown_name
from tuner.files.plain import excerpt

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
    missing_rows: int
    missing_cells: int
    """Empty ones in the targets."""


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
    shortest = layout.shortest + (layout.missing if gaps == "fill" and layout.series == 1 else 0)
    sizes = sizes_for(
        shortest,
        usual_sizes(layout.frequency, layout.step_us),
        input_size=told.input_size,
        horizon=told.horizon,
        name=str(sheet.path) if layout.series == 1 else f"{sheet.path}: its shortest series",
    )
    return Proposal(
        name=name,
        source=_source(sheet, layout, gaps),
        targets=tuple(column.name for column in targets),
        frequency=layout.frequency,
        sizes=sizes,
        calendar=calendar_for(layout.step_us, layout.span_us) if layout.when else (),
        static_id=layout.id_column is not None,
        rows=sheet.rows,
        series=layout.series,
        guesses=tuple(guesses),
        left_out=tuple(left_out),
        missing_rows=layout.missing,
        missing_cells=sum(column.missing for column in targets),
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
    choices = ("fill", "skip", "refuse") if layout.when else ("fill", "refuse")
    if not layout.regular:
        value, what = "skip", f"times are not all {layout.frequency!r} apart"
    elif not layout.missing and not cells:
        return None
    else:
        counts = ((layout.missing, "rows are missing"), (cells, "cells are empty"))
        what = ", ".join(f"{number:,} {words}" for number, words in counts if number)
        made_up = layout.missing > layout.rows or (not layout.within_a_day and not cells)
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
