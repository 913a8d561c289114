"""From recent rows to what a network sees: a window for each series, and the times it forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.calendar_features import calendar_columns
from tuner.data.recent_rows import (
    Floats,
    by_series,
    is_counted,
    numbers_of,
    refuse_missing_columns,
    time_column,
    times_of,
)
from tuner.data.source_kinds import FileSource
from tuner.data.task import Task
from tuner.data.times import Times, counted_times
from tuner.errors import DataError, UsageError

# The steps of a window that is forecast: those given, checked, and those that follow.


def steps_of(task: Task, name: str, times: pd.Index, end: int) -> tuple[npt.NDArray[Any], Times]:
    """The steps of the window whose history ends before row `end`, (L + T,), and what clocks show
    at them, (L + T,) datetime64[us]: where the task has a time zone or an index, not the same.

    Args:
        task: how long a window is, and how times follow each other.
        name: of the series, for messages.
        times: of the rows given, (R,), as `times_of` has them.
        end: how many of them have values.

    Raises:
        DataError: times that are not one step apart.
    """
    source = task.source
    if is_counted(task):
        return _counted(task, name, int(times[end - task.input_size]))
    skips = isinstance(source, FileSource) and source.gaps == "skip"
    found = _times(task, name, times, end, skips=skips)
    zone = source.timezone if isinstance(source, FileSource) else None
    if zone is None:
        return found, found
    from tuner.data.times import to_local

    return found, to_local(found, zone)


def next_step(task: Task, times: pd.Index, end: int) -> Any:
    """What follows the last of the first `end` rows."""
    last = times[end - 1]
    if is_counted(task):
        return int(last) + 1
    coming = pd.date_range(last, periods=2, freq=task.frequency)
    return next(each for each in coming if each > last)  # the last may be off it, with gaps skipped


def _counted(task: Task, name: str, first: int) -> tuple[npt.NDArray[np.int64], Times]:
    """The numbers of the rows, and their dates where the calendar asks for them."""
    steps = first + np.arange(task.window, dtype=np.int64)
    if first < 0 or not task.calendar:
        return steps, np.zeros(task.window, dtype="datetime64[us]")
    assert isinstance(task.source, FileSource), "only files have an index"
    start = task.source.start
    dates = counted_times(first + task.window, start, task.frequency, f"series {name!r}")
    return steps, dates[first:]


def _times(task: Task, name: str, times: pd.Index, end: int, *, skips: bool) -> Times:
    """In UTC where there is a time zone."""
    first = end - task.input_size
    if pd.isna(times[first]):
        raise DataError(
            f"series {name!r}: {time_column(task)!r} is empty in a row that the network sees; "
            "fill it in"
        )
    if skips:  # the rows that are there are consecutive; the frequency only leads on from the last
        ahead = pd.date_range(times[end - 1], periods=task.horizon + 1, freq=task.frequency)
        later = ahead[ahead > times[end - 1]][: task.horizon]
        expected = times[first:end].append(later)
        there = times[first:end]
    else:
        expected = pd.date_range(times[first], periods=task.window, freq=task.frequency)
        there = times[first : first + len(expected)]
    wrong = np.flatnonzero(there != expected[: len(there)])
    if wrong.size:
        raise DataError(f"series {name!r}: {_what_is_wrong(task, there, expected, int(wrong[0]))}")
    found: Times = expected.to_numpy().astype("datetime64[us]")
    return found


def _what_is_wrong(task: Task, there: pd.Index, expected: pd.Index, at: int) -> str:
    if at >= task.input_size:
        return (
            f"the future covariates must be those of {expected[at]}, {there[at]} stands there; "
            f"give a row for each of the {task.horizon} times to forecast"
        )
    steps = np.unique(np.diff(there.to_numpy()[: task.input_size]))
    if len(steps) == 1 and steps[0] > np.timedelta64(0):
        return (
            f"its rows are {pd.Timedelta(steps[0])} apart, the network was trained on frequency "
            f"{task.frequency!r}; give rows of that frequency"
        )
    return (
        f"{there[at]} stands where frequency {task.frequency!r} expects {expected[at]}; give the "
        "rows oldest first, without gaps or repetitions"
    )


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
    times: npt.NDArray[Any]  # (B, T): datetime64; of an index, the numbers of the rows, int64


def last_windows(
    task: Task,
    names: Sequence[str],
    frame: pd.DataFrame,
    scaling: Scaling,
    *,
    start: pd.Timestamp | int | None = None,
) -> LastWindows:
    """The windows that end with each series' last row that has values.

    Args:
        task: which columns there are, and how long a window is.
        names: the series the network was trained on, in the order of their numbers.
        frame: rows as in the task's CSV, oldest first. Rows after the last one with target values
            carry the future covariates of the times to forecast; they are needed where the task has
            such columns, and only there.
        scaling: of targets, past covariates and future covariates, for all of `names`.
        start: first time to forecast, UTC, or the number of a row of an index; targets and past
            covariates from it on are not looked at. Without it, what follows the last row with
            target values.

    Raises:
        UsageError: series that the network does not know, or a `start` that is not the time after a
            row with values.
        DataError: a column, rows or values that are missing, or timestamps that are not one step
            apart.
    """
    refuse_missing_columns(task, frame)
    windows = []
    for name, rows in by_series(task, names, frame).items():
        number = list(names).index(name)
        times = times_of(task, name, rows)
        given = numbers_of(task, name, rows)
        if start is not None:
            given[times >= start, : len(task.target_columns) + len(task.past_covariates)] = np.nan
        one = _Rows(name, times, given, _end(task, given))
        _check_start(task, one, start)
        windows.append(
            (number, *_window(task, one, scaling.minimum[number], scaling.scale[number]))
        )
    return LastWindows(
        series=np.array([window[0] for window in windows]),
        past=np.stack([window[1] for window in windows]),
        future=np.stack([window[2] for window in windows]),
        times=np.stack([window[3] for window in windows]),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was given of one series: times (R,), numbers (R, C + P + F), and how many rows there are
    up to the last one with values.
    """

    name: str
    times: pd.Index
    given: Floats
    end: int


def _end(task: Task, given: Floats) -> int:
    known = np.flatnonzero(np.isfinite(given[:, : len(task.target_columns)]).any(axis=1))
    return int(known[-1]) + 1 if len(known) else 0


def _check_start(task: Task, rows: _Rows, start: pd.Timestamp | int | None) -> None:
    if start is None or rows.end == 0:
        return
    after = next_step(task, rows.times, rows.end)
    if after != start:
        raise UsageError(
            f"series {rows.name!r} cannot be forecast from {start} on: its last row with values "
            f"before is of {rows.times[rows.end - 1]}, so its forecast would begin at {after}"
        )


def _window(
    task: Task, rows: _Rows, minimum: Floats, scale: Floats
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]:
    """(L, C + P + F), (T, F) and (T,) of one series; `minimum` and `scale` are of its rows."""
    n_targets, n_past = len(task.target_columns), len(task.past_covariates)
    name, given, end = rows.name, rows.given, rows.end
    if end < task.input_size:
        raise DataError(
            f"series {name!r} has {end} rows with values, the network sees {task.input_size}; "
            "give more rows before"
        )
    times, clock = steps_of(task, name, rows.times, end)
    ahead = task.horizon if task.future_covariates else 0
    if len(given) < end + ahead:
        raise DataError(
            f"series {name!r}: {', '.join(map(repr, task.future_covariates))} "
            f"must be known for the {task.horizon} times to forecast, "
            f"from {_shown(times[task.input_size])} on; add rows with them, targets empty"
        )
    window = given[end - task.input_size : end + ahead]
    _refuse_gaps(task, name, window, times)
    scaled = (window - minimum) / scale
    _refuse_too_large(task, name, scaled, times)
    calendar = calendar_columns(clock, task.calendar)  # (L + T, ...)
    future = np.hstack([scaled[:, n_targets + n_past :], calendar[: len(scaled)]])
    past = np.hstack([scaled[: task.input_size, : n_targets + n_past], future[: task.input_size]])
    coming = np.hstack(
        [scaled[task.input_size :, n_targets + n_past :], calendar[task.input_size :][:ahead]]
    )
    if not ahead:
        coming = calendar[task.input_size :]
    return past.astype(np.float32), coming.astype(np.float32), times[task.input_size :]


def _refuse_too_large(task: Task, name: str, scaled: Floats, times: npt.NDArray[Any]) -> None:
    """What the network's arithmetic has no number for would come out as no forecast."""
    with np.errstate(over="ignore"):
        seen = scaled.astype(np.float32)
    bad = np.isinf(seen) & np.isfinite(scaled)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        columns = (*task.target_columns, *task.past_covariates, *task.future_covariates)
        raise DataError(
            f"series {name!r}: {columns[column]!r} at {_shown(times[row])} is too large a number "
            "for the network; correct it"
        )


def _refuse_gaps(task: Task, name: str, window: Floats, times: npt.NDArray[Any]) -> None:
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
            f"{_shown(times[row])}; fill it in"
        )


def _shown(step: Any) -> str:
    return str(pd.Timestamp(step)) if isinstance(step, np.datetime64) else f"row {step}"
