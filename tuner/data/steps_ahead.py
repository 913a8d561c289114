"""The steps of a window that is forecast: those given, checked, and those that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.recent_rows import is_counted, time_column
from tuner.data.source_kinds import FileSource
from tuner.data.task import Task
from tuner.data.times import Times, counted_times
from tuner.errors import DataError


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
    from tuner.data.local_time import to_local

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
