"""What a task's data is, in figures: rows, times, windows, what was made up, and how much each
column weighs in the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.config import Objective
from tuner.data.prepare import SPLITS, PreparedData, mean_change, prepare, runs_of, split_sizes
from tuner.data.series import Series
from tuner.data.source_kinds import FileSource
from tuner.data.sources import open_source
from tuner.data.task import Task

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFacts:
    """One series: its rows with those that were filled in, and its first and last time; those of
    an index that nobody dated are None.
    """

    name: str
    rows: int
    first: np.datetime64 | None
    last: np.datetime64 | None
    filled_rows: int
    filled_cells: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataFacts:
    """The facts, and the data that they are of."""

    prepared: PreparedData
    raw: tuple[Series, ...]
    series: tuple[SeriesFacts, ...]
    windows: dict[str, int]
    constant: tuple[str, ...]
    """Columns that do not change in the training rows; of several series, `SERIES: COLUMN`."""
    shares: dict[str, float]
    """Of each target in the objective; empty where nothing changes."""

    @property
    def rows(self) -> int:
        """Of all series together."""
        return sum(each.rows for each in self.series)


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
        raw=raw,
        series=tuple(
            SeriesFacts(
                name=one.name,
                rows=len(one.values),
                first=_clock(one)[0] if dated else None,
                last=_clock(one)[-1] if dated else None,
                filled_rows=one.filled_rows,
                filled_cells=one.filled_cells,
            )
            for one in raw
        ),
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


def _clock(one: Series) -> npt.NDArray[np.datetime64]:
    return one.timestamps if one.clock is None else one.clock


def _training(task: Task, one: Series) -> npt.NDArray[np.float64]:
    """The training rows of a series, or of a file; of files that are dealt whole, all rows."""
    if runs_of(task) == "by_file":
        return one.values
    return one.values[: split_sizes(len(one.values), task.split)[0]]


def _constant(task: Task, series: tuple[Series, ...]) -> tuple[str, ...]:
    columns = (*task.target_columns, *task.past_covariates, *task.future_covariates)
    found = []
    rows_of = {one.name: _training(task, one) for one in series}
    if runs_of(task) is not None:  # a column that is constant in each file may tell them apart
        rows_of = {task.name: np.concatenate(list(rows_of.values()))}
    for owner, rows in rows_of.items():
        for position in np.flatnonzero(rows.min(axis=0) == rows.max(axis=0)):
            name = columns[int(position)]
            found.append(name if len(rows_of) == 1 else f"{owner}: {name}")
    return tuple(found)
