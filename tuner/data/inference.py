"""From recent rows to what a network sees: a window for each series, and the times it forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.calendar_features import calendar_columns
from tuner.data.source_kinds import CsvSource, EtthSource
from tuner.data.task import Task
from tuner.errors import DataError, UsageError, unknown_name

Floats = npt.NDArray[np.float64]
SERIES = "series"
"""The id column of built-in tasks, whose sources have none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """Minimum and range of the training rows, (S, columns): scaled = (value - minimum) / scale."""

    minimum: Floats
    scale: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastWindows:
    """The last window of each of B series, scaled, and the T times after it."""

    series: npt.NDArray[np.int64]  # (B,): number of each series
    past: npt.NDArray[np.float32]  # (B, L, C + P + F)
    future: npt.NDArray[np.float32]  # (B, T, F)
    times: npt.NDArray[np.datetime64]  # (B, T)


def time_column(task: Task) -> str:
    """The column that holds a task's timestamps."""
    if isinstance(task.source, CsvSource):
        return task.source.time_column
    return "date" if isinstance(task.source, EtthSource) else "ds"


def id_column(task: Task) -> str:
    """The column that names a row's series."""
    return (task.source.id_column if isinstance(task.source, CsvSource) else None) or SERIES


def last_windows(
    task: Task, names: Sequence[str], frame: pd.DataFrame, scaling: Scaling
) -> LastWindows:
    """The windows that end with each series' last row that has values.

    Args:
        task: which columns there are, and how long a window is.
        names: the series the network was trained on, in the order of their numbers.
        frame: rows as in the task's CSV, oldest first. Rows after the last one with target values
            carry the future covariates of the times to forecast; they are needed where the task has
            such columns, and only there.
        scaling: of targets, past covariates and future covariates, for all of `names`.

    Raises:
        UsageError: series that the network does not know.
        DataError: a column, rows or values that are missing, or timestamps that are not one step
            apart.
    """
    columns = [*task.target_columns, *task.past_covariates, *task.future_covariates]
    for column in (time_column(task), *columns):
        if column not in frame.columns:
            there = ", ".join(map(repr, map(str, frame.columns)))
            raise DataError(f"the table has no column {column!r}; there are: {there}")
    windows = []
    for name, rows in _by_series(task, names, frame).items():
        number = list(names).index(name)
        windows.append(
            (number, *_window(task, name, rows, scaling.minimum[number], scaling.scale[number]))
        )
    return LastWindows(
        series=np.array([window[0] for window in windows]),
        past=np.stack([window[1] for window in windows]),
        future=np.stack([window[2] for window in windows]),
        times=np.stack([window[3] for window in windows]),
    )


def _by_series(task: Task, names: Sequence[str], frame: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    column = id_column(task)
    if column not in frame.columns:
        if len(names) == 1:
            return {names[0]: frame}
        raise UsageError(
            "the table does not say which series its rows belong to; "
            f"add a column {column!r} that holds one of: {', '.join(names)}"
        )
    found = {str(name): rows for name, rows in frame.groupby(column, sort=False)}
    for name in found:
        if name not in names:
            raise unknown_name("series", name, names, more="; the network was trained on these")
    if not found:
        raise DataError("the table has no rows")
    return found


def _window(
    task: Task, name: str, rows: pd.DataFrame, minimum: Floats, scale: Floats
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.datetime64]]:
    """(L, C + P + F), (T, F) and (T,) of one series; `minimum` and `scale` are of its rows."""
    n_targets, n_past = len(task.target_columns), len(task.past_covariates)
    given = _numbers(task, name, rows)
    known = np.flatnonzero(np.isfinite(given[:, :n_targets]).any(axis=1))
    end = int(known[-1]) + 1 if len(known) else 0
    if end < task.input_size:
        raise DataError(
            f"series {name!r} has {end} rows with values, the network sees {task.input_size}; "
            "give more rows before"
        )
    times = _times(task, name, rows, end)
    ahead = task.horizon if task.future_covariates else 0
    if len(given) < end + ahead:
        raise DataError(
            f"series {name!r}: {', '.join(map(repr, task.future_covariates))} "
            f"must be known for the {task.horizon} times to forecast, "
            f"from {pd.Timestamp(times[task.input_size])} on; add rows with them, targets empty"
        )
    window = given[end - task.input_size : end + ahead]
    _refuse_gaps(task, name, window, times)
    scaled = (window - minimum) / scale
    calendar = calendar_columns(times, task.calendar)  # (L + T, ...)
    future = np.hstack([scaled[:, n_targets + n_past :], calendar[: len(scaled)]])
    past = np.hstack([scaled[: task.input_size, : n_targets + n_past], future[: task.input_size]])
    coming = np.hstack(
        [scaled[task.input_size :, n_targets + n_past :], calendar[task.input_size :][:ahead]]
    )
    if not ahead:
        coming = calendar[task.input_size :]
    return past.astype(np.float32), coming.astype(np.float32), times[task.input_size :]


def _numbers(task: Task, name: str, rows: pd.DataFrame) -> Floats:
    columns = [*task.target_columns, *task.past_covariates, *task.future_covariates]
    try:
        return rows[columns].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"series {name!r}: a cell of {', '.join(columns)} is no number ({_first_line(error)})"
        ) from None


def _times(task: Task, name: str, rows: pd.DataFrame, end: int) -> npt.NDArray[np.datetime64]:
    """The times of the window, (L + T,): those given, checked, and the ones that follow."""
    cells = rows[time_column(task)]
    try:
        form = None if pd.api.types.is_datetime64_any_dtype(cells) else "ISO8601"
        given = pd.DatetimeIndex(pd.to_datetime(cells, format=form, utc=True)).tz_localize(None)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"series {name!r}: {time_column(task)!r} holds no timestamps ({_first_line(error)})"
        ) from None
    first = end - task.input_size
    expected = pd.date_range(
        given[first], periods=task.input_size + task.horizon, freq=task.frequency
    )
    there = given[first : first + len(expected)]
    wrong = np.flatnonzero(there != expected[: len(there)])
    if wrong.size:
        at = int(wrong[0])
        raise DataError(
            f"series {name!r}: {there[at]} stands where frequency {task.frequency!r} expects "
            f"{expected[at]}; give the rows oldest first, without gaps or repetitions"
        )
    return expected.to_numpy().astype("datetime64[us]")


def _refuse_gaps(task: Task, name: str, window: Floats, times: npt.NDArray[np.datetime64]) -> None:
    """Every cell read must be a finite number; targets and past covariates are not read ahead."""
    columns: tuple[Any, ...] = (
        *task.target_columns,
        *task.past_covariates,
        *task.future_covariates,
    )
    bad = ~np.isfinite(window)
    bad[task.input_size :, : len(task.target_columns) + len(task.past_covariates)] = False
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"series {name!r}: {columns[column]!r} has no finite number at "
            f"{pd.Timestamp(times[row])}; fill it in"
        )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
