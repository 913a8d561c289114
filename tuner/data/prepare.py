"""From a task to scaled arrays and windows.

Rows are split by time, or by file, and scaled by the training rows only; no window crosses a split,
a series or a file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from importlib import resources
from itertools import accumulate, compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.config import ModelShapes, Objective
from tuner.data.series import Series, calendar_columns
from tuner.data.sources import in_order_of_splits, open_source
from tuner.data.task import Task, shapes
from tuner.errors import DataError, DataGoneError, first_line, unknown_name
from tuner.files.durable import replacing
from tuner.files.environment import user_cache

if TYPE_CHECKING:
    from tuner.data.open_file import OpenFile

# What is split, scaled and cut into windows as one: a series, or one of the files that together
# are a series.


SPLITS = ("train", "val", "test")
OF_SPLIT = ("rows", "starts", "series_index")
"""The arrays of a split."""
SMALLER_WINDOW = "a smaller input_size or horizon"
"""The remedy for rows that are too few."""

Floats = npt.NDArray[np.float64]
_log = logging.getLogger(__name__)


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
    runs = task.file.runs
    for one in series:
        _check_length(task, one)
    if runs == "by_file":
        return list(_dealt(task, in_order_of_splits(series)))
    return [
        Piece(rows=one, number=0 if runs else number, splits=_by_time(task, len(one.values)))
        for number, one in enumerate(series)
    ]


def _by_time(task: Task, rows: int) -> dict[str, slice]:
    ends = [0, *accumulate(split_sizes(rows, task.split))]
    return {name: slice(*each) for name, each in zip(SPLITS, pairwise(ends), strict=True)}


def _dealt(task: Task, runs: Sequence[Series]) -> Iterator[Piece]:
    """Whole files, to training first."""
    for name, part in _by_time(task, len(runs)).items():
        if part.start == part.stop:
            raise DataError(
                f"{task.file.path}: the pattern finds {len(runs)} files, and the {name} split gets "
                'none; give more files, or cut each by time with runs = "by_time" under [source]'
            )
        for one in runs[part]:
            yield Piece(rows=one, number=0, splits={name: slice(0, len(one.values))})


def _shortest(task: Task, rows: int) -> int:
    """The rows of the shortest split of so many; of a file that is dealt whole, all."""
    return rows if task.file.runs == "by_file" else min(split_sizes(rows, task.split))


def _check_length(task: Task, one: Series) -> None:
    rows, window = len(one.values), task.window
    needed, shortest = rows, _shortest(task, rows)
    while _shortest(task, needed) < window:
        # The next count that could do: what the shortest split lacks, at least one row.
        needed += max(1, window - _shortest(task, needed))
    if needed > rows:
        what = f"file {one.name}" if task.file.runs else f"series {one.name!r}"
        raise DataError(
            f"{task.file.path}: {what} has {rows} rows, needed are {needed}: each split must hold "
            f"a window of input_size {task.input_size} + horizon {task.horizon} = {window} rows, "
            f"and the shortest has {shortest}; give more rows, leave it out, or {SMALLER_WINDOW}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedSplit:
    """One split: the rows of all series, one series after the other, and the windows over them.

    `rows` (R, C + P + F) is float32: targets, past covariates, future covariates; these columns are
    scaled, the calendar (the last ones) is not. `starts` (N,) int64 is the first row of each
    window, `series_index` (N,) int64 its series. A window is input_size rows of history and then
    horizon rows to forecast. Of rows that are mapped from a file another process is told its name.
    """

    rows: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    series_index: npt.NDArray[np.int64]
    n_targets: int
    n_past: int

    @property
    def targets(self) -> npt.NDArray[np.float32]:
        """(R, C)."""
        return self.rows[:, : self.n_targets]

    @property
    def past(self) -> npt.NDArray[np.float32]:
        """(R, P)."""
        return self.rows[:, self.n_targets : self.n_targets + self.n_past]

    @property
    def future(self) -> npt.NDArray[np.float32]:
        """(R, F)."""
        return self.rows[:, self.n_targets + self.n_past :]

    @property
    def place(self) -> Path | None:
        """The file that the rows are mapped from; None where they are in memory."""
        return Path(str(self.rows.filename)) if isinstance(self.rows, np.memmap) else None

    def __reduce__(self) -> tuple[Any, ...]:
        rows = self.rows if self.place is None else self.place
        return _split_of, (rows, self.starts, self.series_index, self.n_targets, self.n_past)


def _split_of(rows: npt.NDArray[np.float32] | Path, *others: Any) -> PreparedSplit:
    """Raises DataGoneError where the file with the rows is there no more."""
    starts, series_index, n_targets, n_past = others
    return PreparedSplit(
        rows=_mapped(rows) if isinstance(rows, Path) else rows,
        starts=starts,
        series_index=series_index,
        n_targets=n_targets,
        n_past=n_past,
    )


def _mapped(path: Path) -> npt.NDArray[np.float32]:
    """Writable as torch wants it, and never written to."""
    try:
        found: npt.NDArray[np.float32] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataGoneError(f"{path}: cannot be mapped ({first_line(error)})") from None
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedData:
    """A task's data, ready for a device.

    `static` (S, K) float32, K 0 or 1; original = scaled * `scale` + `minimum`, both (S, C) float64;
    here S counts the series. `covariate_minimum` and `covariate_scale` are the same for the past
    and then the future covariate columns. `change` (S, C) is each target's mean absolute change
    from one training row to the next, in original units; 1 where nothing changes. `data_hash` is
    the SHA-256 of the values, the timestamps and the task's definition: where the file lies, and
    how it was written, is no part of it.
    `filled_rows` and `filled_cells` count what was made up, for each series. `training_rows` are
    those that the scaling is of, and all there are; `training_ends` the first and the last of the
    former, as times, or of an index as the numbers of rows.
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
    training_rows: tuple[int, ...] = ()
    training_ends: tuple[str, ...] = ()
    data_memory: int | None = None
    """Bytes of the device that its rows may take, where somebody said so."""

    def within(self, data_memory: int | None) -> PreparedData:
        """The same, whose rows may take no more bytes of a device than this, and than was said
        before; None says nothing.
        """
        told = [each for each in (self.data_memory, data_memory) if each is not None]
        return replace(self, data_memory=min(told, default=None))

    def filled_notice(self) -> str | None:
        """How much of the data was made up, in a line; None where nothing was."""
        rows, cells = sum(self.filled_rows), sum(self.filled_cells)
        made_up = f"{rows:,} missing rows and {cells:,} empty cells were filled"
        counted = f"({self.task.file.fill}); the objective counts them as if they had been measured"
        return f"task {self.task.name}: {made_up} {counted}" if rows or cells else None


def prepare(
    task: Task,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    file: OpenFile | None = None,
    whole: bool = False,
) -> PreparedData:
    """Read, check, split and scale a task's data; the result is kept in `cache_dir`.

    Args:
        task: what to prepare.
        data_dir: folder or URL with ETTh1.csv and ETTh2.csv, or with a CSV that is not at its own
            path; one that lacks them is an error.
        cache_dir: where prepared data is kept, keyed by the content of the source files, the task
            and this code.
        file: the task's, where it was opened before.
        whole: the train split has all rows, and the scaling is theirs; the windows of the other
            splits are among its own.

    Raises:
        DataError: data that is missing, unreadable, too short or otherwise unfit; one line with
            file, row and column.
        UsageError: `objective_series` names no series of the data.
    """
    source = open_source(task, data_dir, file=file)
    folder = user_cache() / "prepared" if cache_dir is None else cache_dir
    key = _cache_key(task, source.content_digest) + "-whole" * whole
    stored: dict[str, Any] | None = _kept(folder, key)
    if stored is None:
        stored = _build(task, source.parse(), whole=whole)
        _keep(folder, key, stored)
    parts: dict[str, Any] = {"data_hash": str(stored.pop("data_hash"))}
    for name in SPLITS:
        mine = [stored.pop(f"{name}.{each}") for each in OF_SPLIT]
        parts[name] = _split_of(*mine, len(task.target_columns), len(task.past_covariates))
    for name in ("series", "filled_rows", "filled_cells", "training_rows", "training_ends"):
        parts[name] = tuple(stored.pop(name).tolist())
    return PreparedData(task=task, shapes=shapes(task), **parts, **stored)


def _kept(folder: Path, key: str) -> dict[str, npt.NDArray[Any]] | None:
    """The arrays that were stored under `key`; None where there are none, or they are damaged."""
    path = folder / f"{key}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        _log.warning("%s is damaged; preparing the data again (%s)", path, first_line(error))
        return None


def _keep(folder: Path, key: str, arrays: Mapping[str, Any]) -> None:
    """Store arrays under `key` in one step; a folder that cannot be written to is a warning."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / f"{key}.npz", mode=0o600) as file:
            np.savez(file, **arrays)
    except OSError as error:
        _log.warning("prepared data is not kept: cannot write to %s (%s)", folder, error.strerror)


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


def _build(task: Task, series: Sequence[Series], *, whole: bool) -> dict[str, npt.NDArray[Any]]:
    """All of `PreparedData` that the task alone does not say, as plain arrays for the cache: of a
    split, one row after the other.
    """
    series = long_enough(task, tuple(series))
    names = (task.name,) if task.file.runs else tuple(one.name for one in series)
    if task.objective_series is not None and task.objective_series not in names:
        raise unknown_name("objective_series", task.objective_series, names)
    pieces = pieces_of(task, tuple(series))
    if whole:
        for place, each in enumerate(pieces):
            everything = {"train": slice(0, len(each.rows.values))}
            pieces[place] = replace(each, splits={**each.splits, **everything})
    n_targets = len(task.target_columns)
    mine = [[piece for piece in pieces if piece.number == n] for n in range(len(names))]
    scalings = [_fit_scaling(np.concatenate([each.training for each in own])) for own in mine]
    parts: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
    kept = dict.fromkeys(SPLITS, 0)
    for piece in pieces:
        one, number = piece.rows, piece.number
        _refuse_beyond_bounds(task, one)
        scaled = _ready_rows(task, one, *scalings[number])
        for name, rows in piece.splits.items():
            stride = task.horizon if name == "test" else 1
            starts = window_starts(rows.stop - rows.start, task.window, stride)
            parts[f"{name}.rows"].append(scaled[rows])
            parts[f"{name}.starts"].append(starts + kept[name])
            parts[f"{name}.series_index"].append(np.full(len(starts), number, dtype=np.int64))
            kept[name] += rows.stop - rows.start
    minimum, scale = (np.stack(each) for each in zip(*scalings, strict=True))
    changes = [mean_change(*(each.training[:, :n_targets] for each in own)) for own in mine]
    return {
        **{name: np.concatenate(arrays) for name, arrays in parts.items()},
        "series": np.array(names),
        "static": np.arange(len(names), dtype=np.float32)[:, None][:, : int(task.static_id)],
        "minimum": minimum[:, :n_targets],
        "scale": scale[:, :n_targets],
        "covariate_minimum": minimum[:, n_targets:],
        "covariate_scale": scale[:, n_targets:],
        "change": np.stack(changes),
        "data_hash": np.array(data_hash(task, series)),
        "filled_rows": np.array([sum(p.rows.filled_rows for p in own) for own in mine]),
        "filled_cells": np.array([sum(p.rows.filled_cells for p in own) for own in mine]),
        "training_rows": np.array([kept["train"], sum(len(p.rows.values) for p in pieces)]),
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


def _refuse_beyond_bounds(task: Task, one: Series) -> None:
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


def _fit_scaling(train: Floats) -> tuple[Floats, Floats]:
    """Minimum and range of each column of the training rows; a constant column has scale 1."""
    minimum = train.min(axis=0)
    with np.errstate(over="ignore"):
        scale = train.max(axis=0) - minimum
    return minimum, np.where(scale > 0, scale, 1.0)


def _ready_rows(task: Task, one: Series, minimum: Floats, scale: Floats) -> npt.NDArray[np.float32]:
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


# How much each column weighs in the objective, and which ones do not change.


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
    whole = task.file.runs == "by_file"
    return one.values if whole else one.values[_by_time(task, len(one.values))["train"]]


def constant_columns(task: Task, series: tuple[Series, ...]) -> tuple[str, ...]:
    """Those that do not change in the training rows; of several series, `SERIES: COLUMN`."""
    found = []
    rows_of = {one.name: _training(task, one) for one in series}
    if task.file.runs:  # a column that is constant in each file may tell them apart
        rows_of = {task.name: np.concatenate(list(rows_of.values()))}
    for owner, rows in rows_of.items():
        of = "" if len(rows_of) == 1 else f"{owner}: "
        constant = rows.min(axis=0) == rows.max(axis=0)
        found += [f"{of}{name}" for name in compress(task.columns, constant)]
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
        first = len(places) * (BLOCKS - 1) // BLOCKS
        found[places[first:]] = BLOCKS
        # All windows have the same history, so their forecasts are as far apart as they are.
        before = places[:first]
        apart = before[starts[before] + horizon <= starts[places[first]]]
        for number, part in enumerate(np.array_split(apart, BLOCKS - 1), start=1):
            found[part] = number
    return found
