"""From a task to scaled arrays and windows.

Rows are split by time, or by file, and scaled by the training rows only; no window crosses a split,
a series or a file.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import resources
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.config import ModelShapes, Objective
from tuner.data.maps import LARGE_CELLS, MAPS, keep, kept, mapped, mapped_of
from tuner.data.series import Series
from tuner.data.sources import OpenSource, open_source
from tuner.data.splits import (
    SPLITS,
    Floats,
    by_time,
    canonical,
    data_hash,
    facts_of,
    fit_scaling,
    long_enough,
    mean_change,
    pieces_of,
    ready_rows,
    refuse_beyond_bounds,
    window_starts,
)
from tuner.data.task import Task, shapes
from tuner.errors import unknown_name
from tuner.files.environment import user_cache

if TYPE_CHECKING:
    from tuner.data.open_file import OpenFile

OF_SPLIT = ("rows", "starts", "series_index")
"""The arrays of a split."""

_log = logging.getLogger(__name__)


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
        rows=mapped(rows) if isinstance(rows, Path) else rows,
        starts=starts,
        series_index=series_index,
        n_targets=n_targets,
        n_past=n_past,
    )


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
    stored: dict[str, Any] | None = kept(folder, key)
    if stored is None:
        stored = _made(task, source, folder / f"{key}{MAPS}", whole=whole)
    parts: dict[str, Any] = {"data_hash": str(stored.pop("data_hash"))}
    for name in SPLITS:
        mine = [stored.pop(f"{name}.{each}") for each in OF_SPLIT]
        parts[name] = _split_of(*mine, len(task.target_columns), len(task.past_covariates))
    for name in ("series", "filled_rows", "filled_cells", "training_rows", "training_ends"):
        parts[name] = tuple(stored.pop(name).tolist())
    return PreparedData(task=task, shapes=shapes(task), **parts, **stored)


def _made(task: Task, source: OpenSource, place: Path, *, whole: bool) -> dict[str, Any]:
    """The arrays, and at `place` as maps, or else beside it as one file, for the next time."""
    if (mapped := mapped_of(task, source, place, LARGE_CELLS, whole=whole)) is not None:
        return mapped
    try:
        stored = _build(task, source.parse(), whole=whole)
    except MemoryError:
        if (mapped := mapped_of(task, source, place, 0, whole=whole)) is None:
            raise
        _log.warning("task %s: memory ran out, so that its file is read in pieces", task.name)
        return mapped
    keep(place.parent, place.name.removesuffix(MAPS), stored)
    return stored


def _build(task: Task, series: Sequence[Series], *, whole: bool) -> dict[str, npt.NDArray[Any]]:
    """All of `PreparedData` that the task alone does not say, as plain arrays for the cache: of a
    split, one row after the other.
    """
    series = long_enough(task, tuple(series))
    names = (task.name,) if task.file.apart else tuple(one.name for one in series)
    if task.objective_series is not None and task.objective_series not in names:
        raise unknown_name("objective_series", task.objective_series, names)
    pieces = pieces_of(task, tuple(series))
    if whole:
        for place, each in enumerate(pieces):
            everything = {"train": slice(0, len(each.rows.values))}
            pieces[place] = replace(each, splits={**each.splits, **everything})
    n_targets = len(task.target_columns)
    mine = [[piece for piece in pieces if piece.number == n] for n in range(len(names))]
    scalings = [fit_scaling(np.concatenate([each.training for each in own])) for own in mine]
    parts: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
    kept = dict.fromkeys(SPLITS, 0)
    for piece in pieces:
        one, number = piece.rows, piece.number
        refuse_beyond_bounds(task, one)
        scaled = ready_rows(task, one, *scalings[number])
        for name, rows in piece.splits.items():
            stride = task.horizon if name == "test" else 1
            starts = window_starts(rows.stop - rows.start, task.window, stride)
            parts[f"{name}.rows"].append(scaled[rows])
            parts[f"{name}.starts"].append(starts + kept[name])
            parts[f"{name}.series_index"].append(np.full(len(starts), number, dtype=np.int64))
            kept[name] += rows.stop - rows.start
    changes = [mean_change(*(each.training[:, :n_targets] for each in own)) for own in mine]
    return {
        **{name: np.concatenate(arrays) for name, arrays in parts.items()},
        **facts_of(task, names, pieces, scalings, changes),
        "data_hash": np.array(data_hash(task, series)),
        "filled_rows": np.array([sum(p.rows.filled_rows for p in own) for own in mine]),
        "filled_cells": np.array([sum(p.rows.filled_cells for p in own) for own in mine]),
        "training_rows": np.array([kept["train"], sum(len(p.rows.values) for p in pieces)]),
    }


def _cache_key(task: Task, content_digest: str) -> str:
    """Over the source's bytes, all that says how to read them, and the code that prepares them."""
    plain = task.model_dump(mode="json", exclude={"description": True, "source": {"path"}})
    together = hashlib.sha256(canonical([plain, content_digest]))
    for file in sorted(resources.files("tuner.data").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            together.update(file.read_bytes())
    return together.hexdigest()


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


def _training(task: Task, one: Series) -> npt.NDArray[np.float64]:
    """The training rows of a series, or of a file; of files that are dealt whole, all rows."""
    whole = task.file.apart == "by_file"
    return one.values if whole else one.values[by_time(task, len(one.values))["train"]]


def constant_columns(task: Task, series: tuple[Series, ...]) -> tuple[str, ...]:
    """Those that do not change in the training rows; of several series, `SERIES: COLUMN`."""
    found = []
    rows_of = {one.name: _training(task, one) for one in series}
    if task.file.apart:  # a column that is constant in each file may tell them apart
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
