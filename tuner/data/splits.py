"""Which rows of a series each split has, and how they are scaled: by the training rows only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, compress, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.data.series import Series, calendar_columns
from tuner.data.sources import in_order_of_splits
from tuner.data.task import Task
from tuner.errors import DataError

# What is split, scaled and cut into windows as one: a series, or one of the files that together
# are a series.


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


def long_enough(task: Task, series: tuple[Series, ...]) -> tuple[Series, ...]:
    """The series that have a window in each split, where the task leaves out the others; all of
    them where none has.
    """
    if task.file.short_series == "refuse":
        return series
    enough = (_shortest(task, len(one.values)) >= task.window for one in series)
    return tuple(compress(series, enough)) or series


def pieces_of(task: Task, series: tuple[Series, ...]) -> list[Piece]:
    """The pieces of what was read, in the order in which their rows are kept.

    Raises:
        DataError: a piece too short for a window in each of its splits, or too few files.
    """
    runs = task.file.apart
    for one in series:
        _check_length(task, one)
    if runs == "by_file":
        return list(_dealt(task, in_order_of_splits(series)))
    return [
        Piece(rows=one, number=0 if runs else number, splits=by_time(task, len(one.values)))
        for number, one in enumerate(series)
    ]


def by_time(task: Task, rows: int) -> dict[str, slice]:
    ends = [0, *accumulate(split_sizes(rows, task.split))]
    return {name: slice(*each) for name, each in zip(SPLITS, pairwise(ends), strict=True)}


def _dealt(task: Task, runs: Sequence[Series]) -> Iterator[Piece]:
    """Whole files, to training first."""
    for name, part in by_time(task, len(runs)).items():
        if part.start == part.stop:
            raise DataError(
                f"{task.file.path}: the pattern finds {len(runs)} files, and the {name} split gets "
                'none; give more files, or cut each by time with runs = "by_time" under [source]'
            )
        for one in runs[part]:
            yield Piece(rows=one, number=0, splits={name: slice(0, len(one.values))})


def _shortest(task: Task, rows: int) -> int:
    """The rows of the shortest split of so many; of a file that is dealt whole, all."""
    return rows if task.file.apart == "by_file" else min(split_sizes(rows, task.split))


def _check_length(task: Task, one: Series) -> None:
    rows, window = len(one.values), task.window
    needed, shortest = rows, _shortest(task, rows)
    while _shortest(task, needed) < window:
        # The next count that could do: what the shortest split lacks, at least one row.
        needed += max(1, window - _shortest(task, needed))
    if needed > rows:
        what = f"file {one.name}" if task.file.apart else f"series {one.name!r}"
        raise DataError(
            f"{task.file.path}: {what} has {rows} rows, needed are {needed}: each split must hold "
            f"a window of input_size {task.input_size} + horizon {task.horizon} = {window} rows, "
            f"and the shortest has {shortest}; give more rows, leave it out, or {SMALLER_WINDOW}"
        )


def clock_of(one: Series) -> npt.NDArray[np.datetime64]:
    """What clocks showed at the times of a series, (R,)."""
    return one.timestamps if one.clock is None else one.clock


# What is made of the rows of a piece.


def window_starts(rows: int, window: int, stride: int) -> npt.NDArray[np.int64]:
    """First rows of the windows that lie wholly within `rows` rows, (N,)."""
    return np.arange(0, rows - window + 1, stride, dtype=np.int64)


def data_hash(task: Task, series: Sequence[Series]) -> str:
    """SHA-256 over the task's definition and every series' name, timestamps and values."""
    together = hashlib.sha256(canonical(task.definition()))
    for one in series:
        together.update(head_of(one, one.values.shape[1]))
        together.update(np.ascontiguousarray(one.values, dtype="<f8").tobytes())
        if one.filled_rows or one.filled_cells:  # what was made up is not what was measured
            together.update(canonical(["filled", one.filled_rows, one.filled_cells]))
    return together.hexdigest()


def head_of(one: Series, columns: int) -> bytes:
    """What is hashed of a series before its values."""
    times = one.timestamps.astype("datetime64[us]").astype("<i8").tobytes()
    return canonical([one.name, len(one.values), columns]) + times


def facts_of(
    task: Task,
    names: Sequence[str],
    pieces: Sequence[Piece],
    scalings: Sequence[tuple[Floats, Floats]],
    changes: Sequence[Floats],
) -> dict[str, npt.NDArray[Any]]:
    n_targets = len(task.target_columns)
    minimum, scale = (np.stack(each) for each in zip(*scalings, strict=True))
    return {
        "series": np.array(names),
        "static": np.arange(len(names), dtype=np.float32)[:, None][:, : int(task.static_id)],
        "minimum": minimum[:, :n_targets],
        "scale": scale[:, :n_targets],
        "covariate_minimum": minimum[:, n_targets:],
        "covariate_scale": scale[:, n_targets:],
        "change": np.stack(changes),
        "training_ends": np.array(_training_ends(task, pieces)),
    }


def _training_ends(task: Task, pieces: Sequence[Piece]) -> list[str]:
    parts = [(each.rows.timestamps, each.splits.get("train", slice(0, 0))) for each in pieces]
    if task.file.index:
        return [str(min(part.start for _, part in parts)), str(max(p.stop for _, p in parts) - 1)]
    times = np.concatenate([stamps[part] for stamps, part in parts])
    ends = np.datetime_as_string([times.min(), times.max()], "s").tolist()
    whole_days = all(end.endswith("T00:00:00") for end in ends)
    return [end.partition("T")[0] if whole_days else end.replace("T", " ") for end in ends]


def refuse_beyond_bounds(task: Task, one: Series) -> None:
    targets = one.values[:, : len(task.target_columns)]
    low, high = task.limits
    for column in np.flatnonzero(((targets < low) | (targets > high)).any(axis=0))[:1]:
        where = f"{task.file.path}: series {one.name!r}, column {task.target_columns[column]!r}"
        ends = f"{targets[:, column].min():g} to {targets[:, column].max():g}"
        raise DataError(f"{where}: has values from {ends}, beyond its bounds; correct either")


def mean_change(*train: Floats) -> Floats:
    """What a scaled error is measured in (Hyndman and Koehler, "Another look at measures of
    forecast accuracy", 2006; the M5 competition's scaled pinball loss): over all changes from row
    to row within the pieces of the training rows, each (R, C).
    """
    together = np.concatenate([np.abs(np.diff(piece, axis=0)) for piece in train])
    change = together.mean(axis=0) if len(together) else np.zeros(train[0].shape[1])
    return np.where(change > 0, change, 1.0)


def fit_scaling(train: Floats) -> tuple[Floats, Floats]:
    """Minimum and range of each column of the training rows; a constant column has scale 1."""
    minimum = train.min(axis=0)
    with np.errstate(over="ignore"):
        scale = train.max(axis=0) - minimum
    return minimum, np.where(scale > 0, scale, 1.0)


def ready_rows(task: Task, one: Series, minimum: Floats, scale: Floats) -> npt.NDArray[np.float32]:
    """(R, C + P + F): once for all trainings, not once for each window."""
    calendar = calendar_columns(clock_of(one), task.calendar).astype(np.float32)
    return np.hstack([_apply_scaling(task, one, minimum, scale), calendar])


def _apply_scaling(
    task: Task, one: Series, minimum: Floats, scale: Floats
) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = ((one.values - minimum) / scale).astype(np.float32)
    unfit = ~np.isfinite(scaled).all(axis=0)
    if unfit.any():
        column = task.columns[int(np.flatnonzero(unfit)[0])]
        where = f"{task.file.path}: series {one.name!r}, column {column!r}"
        raise DataError(f"{where}: the values are too large for 32-bit numbers; rescale the column")
    return scaled


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
