"""What is split, scaled and cut into windows as one: a series, or one of the files that together
are a series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tuner.data.many_files import in_order_of_splits
from tuner.data.series import Series
from tuner.data.task import Task
from tuner.errors import DataError

SPLITS = ("train", "val", "test")
SMALLER_WINDOW = "a smaller input_size or horizon"
"""The remedy for rows that are too few."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows that follow each other, and which of them each split has."""

    rows: Series
    number: int
    """Of the series it belongs to, from 0: all pieces of one have one scale."""
    splits: Mapping[str, slice]
    """Of the rows; a split that has none of them is not among them."""

    @property
    def ends(self) -> tuple[int, int, int]:
        """How many rows there are up to the end of each split's part."""
        parts = [self.splits.get(name, slice(0, 0)) for name in SPLITS]
        train, val, test = (part.stop - part.start for part in parts)
        return train, train + val, train + val + test

    @property
    def training(self) -> Floats:
        """(R, columns), maybe of no row."""
        return self.rows.values[self.splits.get("train", slice(0, 0))]


def split_sizes(rows: int, split: Sequence[float]) -> tuple[int, int, int]:
    """Rows for training, validation and test.

    Exact decimal arithmetic, rounded down; the test split takes the rest.
    """
    train, val = (Fraction(repr(float(fraction))) for fraction in split[:2])
    train_end = int(rows * train)
    val_end = int(rows * (train + val))
    return train_end, val_end - train_end, rows - val_end


def runs_of(task: Task) -> str | None:
    """How the files of a task's one series are split; None where its series are no files."""
    found: str | None = getattr(task.source, "runs", None)
    return found


def names_of_series(task: Task, series: Sequence[Series]) -> tuple[str, ...]:
    """One for all files of a pattern; else as they were read."""
    return tuple(one.name for one in series) if runs_of(task) is None else (task.name,)


def pieces_of(task: Task, series: tuple[Series, ...], label: str) -> list[Piece]:
    """The pieces of what was read, in the order in which their rows are kept.

    Raises:
        DataError: a piece too short for a window in each of its splits, or too few files.
    """
    runs = runs_of(task)
    if runs == "by_file":
        return list(_dealt(task, in_order_of_splits(series), label))
    for one in series:
        _check_length(task, one, label)
    return [
        Piece(rows=one, number=0 if runs else number, splits=_by_time(task, len(one.values)))
        for number, one in enumerate(series)
    ]


def _by_time(task: Task, rows: int) -> dict[str, slice]:
    found, first = {}, 0
    for name, size in zip(SPLITS, split_sizes(rows, task.split), strict=True):
        found[name] = slice(first, first + size)
        first += size
    return found


def _dealt(task: Task, runs: Sequence[Series], label: str) -> Iterator[Piece]:
    """Whole files, to training first."""
    sizes = split_sizes(len(runs), task.split)
    if min(sizes) < 1:
        found = "1 file" if len(runs) == 1 else f"{len(runs)} files"
        raise DataError(
            f"{label}: the pattern finds {found}, and the {SPLITS[sizes.index(0)]} split "
            f"of {list(task.split)} gets none of them; give more files, or cut each by time with "
            'runs = "by_time" under [source]'
        )
    short = [one for one in runs if len(one.values) < task.window]
    if short:
        one = min(short, key=lambda run: run.name)
        others = f", as have {len(short) - 1} more," if len(short) > 1 else ""
        raise DataError(
            f"{label}: file {one.name} has {len(one.values)} rows{others} and a window has "
            f"input_size {task.input_size} + horizon {task.horizon} = {task.window}; leave such "
            f"files out, or give {SMALLER_WINDOW}"
        )
    names = [name for name, size in zip(SPLITS, sizes, strict=True) for _ in range(size)]
    for name, one in zip(names, runs, strict=True):
        yield Piece(rows=one, number=0, splits={name: slice(0, len(one.values))})


def _check_length(task: Task, one: Series, label: str) -> None:
    rows, window = len(one.values), task.window
    sizes = split_sizes(rows, task.split)
    if min(sizes) >= window:
        return
    needed = rows
    while min(split_sizes(needed, task.split)) < window:
        # The next count that could do: what the shortest split lacks, at least one row.
        needed += max(1, window - min(split_sizes(needed, task.split)))
    shortest = SPLITS[sizes.index(min(sizes))]
    what = f"series {one.name!r}" if runs_of(task) is None else f"file {one.name}"
    remedy = f"give more rows, or {SMALLER_WINDOW}"
    if runs_of(task) is not None:
        remedy += ', or deal whole files to the splits with runs = "by_file"'
    raise DataError(
        f"{label}: {what} has {rows} rows, needed are {needed}: every split must hold "
        f"a window of input_size {task.input_size} + horizon {task.horizon} = {window} rows, and "
        f"the {shortest} split has {min(sizes)}; {remedy}"
    )
