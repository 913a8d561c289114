"""From a task to scaled arrays and windows.

Rows are split by time, or by file, and scaled by the training rows only; no window crosses a split,
a series or a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.config import ModelShapes, Objective
from tuner.data import cache
from tuner.data.series import Series, calendar_columns
from tuner.data.source_kinds import FileSource
from tuner.data.sources import in_order_of_splits, open_source
from tuner.data.task import Task, shapes
from tuner.errors import DataError, UsageError, unknown_name

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedSplit:
    """One split: the rows of all series, one series after the other, and the windows over them.

    `targets` (R, C), `past` (R, P) and `future` (R, F) are float32; targets and covariate columns
    are scaled, the calendar (last in `future`) is not. `starts` (N,) int64 is the first row of each
    window, `series_index` (N,) int64 its series. A window is input_size rows of history and then
    horizon rows to forecast.
    """

    targets: npt.NDArray[np.float32]
    past: npt.NDArray[np.float32]
    future: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    series_index: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedData:
    """A task's data, ready for a device.

    `static` (S, K) float32, K 0 or 1; original = scaled * `scale` + `minimum`, both (S, C) float64;
    here S counts the series. `covariate_minimum` and `covariate_scale` are the same for the past
    and then the future covariate columns. `change` (S, C) is each target's mean absolute change
    from one training row to the next, in original units; 1 where nothing changes. `data_hash` is
    the SHA-256 of the values, the timestamps and the task's definition: where the file lies, and
    how it was written, is no part of it.
    `filled_rows` and `filled_cells` count what was made up, for each series.
    """

    task: Task
    shapes: ModelShapes
    series: tuple[str, ...]
    train: PreparedSplit
    val: PreparedSplit
    test: PreparedSplit
    static: npt.NDArray[np.float32]
    minimum: Floats
    scale: Floats
    covariate_minimum: Floats
    covariate_scale: Floats
    change: Floats
    data_hash: str
    filled_rows: tuple[int, ...] = ()
    filled_cells: tuple[int, ...] = ()

    def filled_notice(self) -> str | None:
        """How much of the data was made up, in a line; None where nothing was."""
        rows, cells = sum(self.filled_rows), sum(self.filled_cells)
        if not rows and not cells:
            return None
        how = getattr(self.task.source, "fill", "forward")
        return (
            f"task {self.task.name}: {rows:,} missing rows and {cells:,} empty cells were filled "
            f"({how}); the objective counts them as if they had been measured"
        )


def prepare(
    task: Task, *, data_dir: Path | None = None, cache_dir: Path | None = None
) -> PreparedData:
    """Read, check, split and scale a task's data; the result is kept in `cache_dir`.

    Args:
        task: what to prepare.
        data_dir: folder or URL with ETTh1.csv and ETTh2.csv, or with a CSV that is not at its own
            path; one that lacks them is an error.
        cache_dir: where prepared data is kept, keyed by the content of the source files, the task
            and this code.

    Raises:
        DataError: data that is missing, unreadable, too short or otherwise unfit; one line with
            file, row and column.
        UsageError: `objective_series` names no series of the data.
    """
    source = open_source(task, data_dir)
    folder = cache.default_folder() if cache_dir is None else cache_dir
    key = _cache_key(task, source.content_digest)
    stored = cache.load(folder, key)
    if stored is None:
        stored = _build(task, source.parse(), source.label)
        cache.store(folder, key, stored)
    splits = {name: PreparedSplit(**stored[name]) for name in SPLITS}
    return PreparedData(task=task, shapes=shapes(task), **stored | splits)


def window_starts(rows: int, window: int, stride: int) -> npt.NDArray[np.int64]:
    """First rows of the windows that lie wholly within `rows` rows, (N,)."""
    return np.arange(0, rows - window + 1, stride, dtype=np.int64)


def data_hash(task: Task, series: Sequence[Series]) -> str:
    """SHA-256 over the task's definition and every series' name, timestamps and values."""
    together = hashlib.sha256(_canonical(task.definition()))
    for one in series:
        together.update(_canonical([one.name, *one.values.shape]))
        together.update(one.timestamps.astype("datetime64[us]").astype("<i8").tobytes())
        together.update(np.ascontiguousarray(one.values, dtype="<f8").tobytes())
        if one.filled_rows or one.filled_cells:  # what was made up is not what was measured
            together.update(_canonical(["filled", one.filled_rows, one.filled_cells]))
    return together.hexdigest()


def _build(task: Task, series: Sequence[Series], label: str) -> dict[str, Any]:
    """All of `PreparedData` that the task alone does not say, as plain arrays for the cache."""
    names = names_of_series(task, series)
    if task.objective_series is not None and task.objective_series not in names:
        raise unknown_name("objective_series", task.objective_series, names)
    pieces = pieces_of(task, tuple(series), label)
    n_targets, n_past = len(task.target_columns), len(task.past_covariates)
    mine = [[piece for piece in pieces if piece.number == n] for n in range(len(names))]
    scalings = [_fit_scaling(np.concatenate([each.training for each in own])) for own in mine]
    collected: dict[str, list[dict[str, npt.NDArray[Any]]]] = {name: [] for name in SPLITS}
    for piece in pieces:
        one, number = piece.rows, piece.number
        scaled = _apply_scaling(task, one, *scalings[number], label)
        calendar = calendar_columns(clock_of(one), task.calendar)
        known = np.hstack([scaled[:, n_targets + n_past :], calendar])
        for name, rows in piece.splits.items():
            stride = task.horizon if name == "test" else 1
            starts = window_starts(rows.stop - rows.start, task.window, stride)
            collected[name].append(
                {
                    "targets": scaled[rows, :n_targets].astype(np.float32),
                    "past": scaled[rows, n_targets : n_targets + n_past].astype(np.float32),
                    "future": known[rows].astype(np.float32),
                    "starts": starts,
                    "series_index": np.full(len(starts), number, dtype=np.int64),
                }
            )
    minimum, scale = (np.stack(each) for each in zip(*scalings, strict=True))
    return {
        **{name: _concatenate(parts) for name, parts in collected.items()},
        "series": names,
        "static": np.arange(len(names), dtype=np.float32)[:, None][:, : int(task.static_id)],
        "minimum": minimum[:, :n_targets],
        "scale": scale[:, :n_targets],
        "covariate_minimum": minimum[:, n_targets:],
        "covariate_scale": scale[:, n_targets:],
        "change": np.stack(
            [mean_change(*(p.training[:, :n_targets] for p in own)) for own in mine]
        ),
        "data_hash": data_hash(task, series),
        "filled_rows": tuple(sum(p.rows.filled_rows for p in own) for own in mine),
        "filled_cells": tuple(sum(p.rows.filled_cells for p in own) for own in mine),
    }


def _concatenate(parts: list[dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """All series' rows one after the other, with window starts where the rows now begin."""
    offset = 0
    for part in parts:
        part["starts"] = part["starts"] + offset
        offset += len(part["targets"])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def mean_change(*train: Floats) -> Floats:
    """What a scaled error is measured in (Hyndman and Koehler, "Another look at measures of
    forecast accuracy", 2006; the M5 competition's scaled pinball loss): over all changes from row
    to row within the pieces of the training rows, each (R, C).
    """
    together = np.concatenate([np.abs(np.diff(piece, axis=0)) for piece in train])
    change = together.mean(axis=0) if len(together) else np.zeros(train[0].shape[1])
    return np.where(change > 0, change, 1.0)


def _fit_scaling(train: Floats) -> tuple[Floats, Floats]:
    """Minimum and range of each column of the training rows; a constant column has scale 1."""
    minimum = train.min(axis=0)
    with np.errstate(over="ignore"):
        scale = train.max(axis=0) - minimum
    return minimum, np.where(scale > 0, scale, 1.0)


def _apply_scaling(task: Task, one: Series, minimum: Floats, scale: Floats, label: str) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (one.values - minimum) / scale
        unfit = ~np.isfinite(scaled.astype(np.float32)).all(axis=0)
    if unfit.any():
        column = task.columns[int(np.flatnonzero(unfit)[0])]
        raise DataError(
            f"{label}: series {one.name!r}, column {column!r}: the values are too large for 32-bit "
            "numbers once scaled by the range of the training rows; rescale the column"
        )
    return np.asarray(scaled, dtype=np.float64)


def _cache_key(task: Task, content_digest: str) -> str:
    """Over the source's bytes, all that says how to read them, and the code that prepares them."""
    plain = task.model_dump(mode="json", exclude={"description": True, "source": {"path"}})
    together = hashlib.sha256(_canonical([plain, content_digest]))
    for file in sorted(resources.files("tuner.data").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            together.update(file.read_bytes())
    return together.hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


# What a task's data is, in figures: rows, times, windows, what was made up, and how much each
# column weighs in the objective.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataFacts:
    """The facts, and the data that they are of."""

    prepared: PreparedData
    series: tuple[Series, ...]
    """As they were read; those of a pattern are its files."""
    dated: bool
    """Whether their times are of a calendar: those of an index that nobody dated are not."""
    windows: dict[str, int]
    constant: tuple[str, ...]
    """Columns that do not change in the training rows; of several series, `SERIES: COLUMN`."""
    shares: dict[str, float]
    """Of each target in the objective; empty where nothing changes."""

    @property
    def rows(self) -> int:
        """Of all series together."""
        return sum(len(each.values) for each in self.series)


def facts_of(task: Task, *, data_dir: Path | None = None) -> DataFacts:
    """Read and prepare a task's data, and look at it.

    Raises:
        DataError: as `tuner.data.prepare.prepare`.
    """
    prepared = prepare(task, data_dir=data_dir)
    raw = open_source(task, data_dir).parse()
    dated = not (
        isinstance(task.source, FileSource) and task.source.index and not task.source.start
    )
    return DataFacts(
        prepared=prepared,
        series=raw,
        dated=dated,
        windows={name: len(getattr(prepared, name).starts) for name in SPLITS},
        constant=_constant(task, raw),
        shares=objective_shares(task, raw),
    )


def objective_shares(task: Task, series: tuple[Series, ...]) -> dict[str, float]:
    """About how much of the objective each target makes up. MQL is a mean in the columns' own
    units, so a column that moves by large numbers outweighs others; a scaled one evens that out.

    The measure is the mean absolute error, over the training rows, of a forecast that repeats the
    last value over the horizon; of the series that are the objective. Shares add up to 1. On ETTh1
    they lie within three points of the shares in the test MQL of a trained network, where shares by
    the columns' levels are up to 24 points off; where the test rows are unlike the training rows,
    so are the shares.
    """
    wanted = task.objective_series
    mine = [one for one in series if wanted is None or one.name == wanted]
    total = np.zeros(len(task.target_columns))
    for one in mine:
        rows = _training(task, one)[:, : len(total)]
        steps = range(1, task.horizon + 1, max(1, task.horizon // 8))
        errors = [np.abs(rows[step:] - rows[:-step]).mean(axis=0) for step in steps]
        unit = mean_change(rows) if task.objective is Objective.SCALED else 1.0
        total += np.mean(errors, axis=0) / unit
    if not total.sum() > 0:
        return {}
    return dict(zip(task.target_columns, (total / total.sum()).tolist(), strict=True))


def clock_of(one: Series) -> npt.NDArray[np.datetime64]:
    """What clocks showed at the times of a series, (R,)."""
    return one.timestamps if one.clock is None else one.clock


def _training(task: Task, one: Series) -> npt.NDArray[np.float64]:
    """The training rows of a series, or of a file; of files that are dealt whole, all rows."""
    if runs_of(task) == "by_file":
        return one.values
    return one.values[: split_sizes(len(one.values), task.split)[0]]


def _constant(task: Task, series: tuple[Series, ...]) -> tuple[str, ...]:
    columns = task.columns
    found = []
    rows_of = {one.name: _training(task, one) for one in series}
    if runs_of(task) is not None:  # a column that is constant in each file may tell them apart
        rows_of = {task.name: np.concatenate(list(rows_of.values()))}
    for owner, rows in rows_of.items():
        for position in np.flatnonzero(rows.min(axis=0) == rows.max(axis=0)):
            name = columns[int(position)]
            found.append(name if len(rows_of) == 1 else f"{owner}: {name}")
    return tuple(found)


# The test split as blocks of time: rolling origins that a search may see, and a last block that
# only a confirmation opens.


BLOCKS = 4
"""The last one takes a fourth of a series' test windows; the others share the rest."""

Integers = npt.NDArray[np.int64]


class TestWindows(Enum):
    """Which windows of the test split are forecast."""

    __test__ = False  # pytest takes it for a test, by its name

    ALL = "all"
    SEARCHED = "searched"
    """All blocks but the last."""
    LAST_BLOCK = "last block"

    def blocks(self) -> tuple[int, ...]:
        """Their numbers, from 1, in the order of time; none where the split is not cut."""
        if self is TestWindows.ALL:
            return ()
        return (BLOCKS,) if self is TestWindows.LAST_BLOCK else tuple(range(1, BLOCKS))


def blocks_of(starts: Integers, series_index: Integers, horizon: int) -> Integers:
    """The block of each window, (N,), from 1 to `BLOCKS`; 0 for one that is in none.

    Each series is cut for itself. Its last block begins after three fourths of its windows. Those
    before it whose forecast reaches into it are in no block; what is left is cut into equal parts.

    Args:
        starts: first rows of the windows, (N,), in the order of time within a series.
        series_index: series of the windows, (N,).
        horizon: rows that a window forecasts.
    """
    found = np.zeros(len(starts), dtype=np.int64)
    for series in np.unique(series_index):
        places = np.flatnonzero(series_index == series)
        first = _first_of_last_block(len(places))
        found[places[first:]] = BLOCKS
        # All windows have the same history, so their forecasts are as far apart as they are.
        before = places[:first]
        apart = before[starts[before] + horizon <= starts[places[first]]]
        for number, part in enumerate(np.array_split(apart, BLOCKS - 1), start=1):
            found[part] = number
    return found


def check_blocks(prepared: PreparedData) -> None:
    """Whether the test split of each series can be cut.

    Raises:
        UsageError: it has too few windows.
    """
    split, horizon = prepared.test, prepared.task.horizon
    blocks = blocks_of(split.starts, split.series_index, horizon)
    for number, name in enumerate(prepared.series):
        mine = split.series_index == number
        if set(range(1, BLOCKS + 1)) <= set(blocks[mine].tolist()):
            continue
        starts = split.starts[mine]
        stride = int(starts[1] - starts[0]) if len(starts) > 1 else horizon
        raise UsageError(
            f"--mql-split origins: series {name!r} has {len(starts)} test windows, expected at "
            f"least {least_windows(horizon, stride)} to cut into {BLOCKS} blocks; give more rows "
            "or a larger test split, or choose --mql-split val"
        )


def least_windows(horizon: int, stride: int) -> int:
    """How many windows a series must have, that lie `stride` rows apart."""
    reaching = -(-horizon // stride) - 1
    windows = BLOCKS
    while _first_of_last_block(windows) - reaching < BLOCKS - 1:
        windows += 1
    return windows


def _first_of_last_block(windows: int) -> int:
    return windows * (BLOCKS - 1) // BLOCKS
