"""The rows that a forecast starts from, as a table has them: by series, times and numbers."""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.calendars import DAY, Times, grid, place_of_most, step_of, within_a_day
from tuner.data.dialect import Floats, as_numbers, dialect_of
from tuner.data.open_file import STANDARD_INPUT, is_parquet, open_frame, opened, read_bytes
from tuner.data.series import Series, calendar_columns
from tuner.data.source_kinds import CsvSource, FileSource, ParquetSource, listed
from tuner.data.sources import open_source
from tuner.data.splits import long_enough
from tuner.data.table import Table, joined_ids, joined_times, table_of
from tuner.data.task import NAME, Task, load_task
from tuner.data.times import UNIX, TimeColumn, counted_times, read_form, to_local
from tuner.display.text import in_csv
from tuner.errors import DataError, TunerError, UsageError, unknown_name
from tuner.files.durable import put

_log = logging.getLogger(__name__)

ROW = "row"
"""The time column of an index: the number of a row, 0 for the first one of the task's file."""
TABLE = "the table"


def time_column(task: Task) -> str:
    """The column that holds a task's timestamps, or the numbers of its rows. Of several columns,
    their names with blanks between, in which forecasts have the whole time.
    """
    return " ".join(listed(task.file.time_column)) or ROW


def id_column(task: Task) -> str:
    """The column that names a row's series; of several, their names with slashes between."""
    return "/".join(listed(task.file.id_column)) or NAME


def key_columns(task: Task) -> tuple[str, ...]:
    """Those that hold times and names: they are read as texts."""
    several = (*listed(task.file.time_column), *listed(task.file.id_column))
    return tuple(dict.fromkeys((time_column(task), id_column(task), *several)))


def timestamp(text: str | pd.Timestamp) -> pd.Timestamp:
    """A time as rows have it: without a zone; one with an offset in UTC.

    Raises:
        UsageError: it is none.
    """
    found = pd.to_datetime([str(text)], format="ISO8601", utc=True, errors="coerce")
    if found.isna()[0] or not str(text)[0].isdigit():  # pandas reads "now", too
        raise UsageError(f"{str(text)!r} is no time; expected ISO 8601, such as '2018-06-01 00:00'")
    return found.tz_localize(None)[0]


def step_named(task: Task, text: str | pd.Timestamp) -> pd.Timestamp | int:
    """A step of a task's rows as somebody names it: a time, or the number of a row of an index.

    Raises:
        UsageError: it is none.
    """
    if not task.file.index:
        return timestamp(text)
    if not str(text).isdecimal():
        raise UsageError(f"{str(text)!r} is no number of a row; expected e.g. 7000")
    return int(str(text))


# A table's rows by series, read as those of the training's file.


def rows_of(
    task: Task, names: Sequence[str], frame: pd.DataFrame, wanted: Sequence[str]
) -> pd.DataFrame:
    """The rows of the series called `wanted`. Where no column names any and one is wanted, all rows
    are its own.

    Raises:
        UsageError: series that the network does not know, or that the table does not have.
    """
    _refuse_unknown(wanted, names)
    column, frame = id_column(task), _named(task, frame)
    if column not in frame.columns:
        return frame.assign(**{column: wanted[0]}) if len(wanted) == 1 else frame
    there = frame[column].astype(str)
    for name in wanted:
        if not (there == name).any():
            raise UsageError(f"the table has no rows of series {name!r} in column {column!r}")
    return frame[there.isin(list(wanted))]


def _refuse_unknown(wanted: Iterable[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise unknown_name("series", name, names, more="; the network was trained on these")


def _named(task: Task, frame: pd.DataFrame) -> pd.DataFrame:
    """With the one column of names, where they stand in several."""
    column, ids = id_column(task), listed(task.file.id_column)
    if column in frame.columns or not ids or not set(ids) <= set(frame.columns):
        return frame
    return frame.assign(**{column: joined_ids([frame[each] for each in ids])})


def observed(task: Task, names: Sequence[str], frame: pd.DataFrame) -> Mapping[str, Table]:
    """The rows of each series in a table as `last_windows` takes it: their times, (R,), in UTC
    where the task has a time zone, or the cells have an offset and a step is shorter than a day; of
    an index, the numbers of the rows. All are the one series' where the network knows but one and
    no column names any.

    Raises:
        UsageError: no table, or series that the network does not know.
        DataError: a column that is missing, or a cell that cannot be read.
    """
    if not isinstance(frame, pd.DataFrame):
        kind = type(frame).__name__
        raise UsageError(f"{TABLE}: a DataFrame of pandas is expected, got a value of type {kind}")
    column, frame = id_column(task), _named(task, frame)
    if column not in frame.columns and len(names) > 1:
        known = ", ".join(names)
        raise UsageError(
            f"{TABLE} lacks a column {column!r}: add a column that holds one of: {known}"
        )
    if not len(frame):
        raise DataError(f"{TABLE} has no rows")
    changes: dict[str, Any] = {"id_column": column if column in frame.columns else None}
    if time_column(task) in frame.columns and not task.file.index:
        changes["time_column"] = time_column(task)
    source = task.file.model_copy(update=changes)
    file = open_frame(frame, TABLE)
    times = list(listed(source.time_column))
    if times and source.time_format is not None:  # written by somebody else, in ISO 8601
        first = joined_times([cells.iloc[:1] for _, cells in file.columns(times, times)])
        if read_form(first, source.time_format).times.isna()[0]:
            source = source.model_copy(update={"time_format": None})
    where = TimeColumn(source=source, frequency=task.frequency, file=TABLE)
    whole = table_of(file, where, task)
    if whole.dated and within_a_day(task.frequency):
        _tell_zones_apart(task, whole, where)
    found = {}
    for name, table in whole.by_series(where).items():
        if name is not None:
            _refuse_unknown([name], names)
        numbers = _numbers_of_rows(task, frame, table) if task.file.index else table.times
        found[name or names[0]] = replace(table, times=numbers)
    return found


def _tell_zones_apart(task: Task, table: Table, where: TimeColumn) -> None:
    """Times with offsets are refused where the training's had none, and it is told where their
    clocks are not the training's.
    """
    form, zone = task.file.time_format or "", where.source.timezone
    if zone is None and form not in UNIX and not form.endswith(("%z", "%Z")):
        raise UsageError(
            f"{TABLE}: {where.column!r} has times with an offset from UTC, expected are times "
            "without one, as the task names no timezone; write them as the training's file has them"
        )
    if zone is None or form in UNIX or table.times is None:
        return
    if not np.array_equal(to_local(table.times, zone), np.asarray(table.clock)):
        _log.warning("%s: times have another offset than %s, and are converted", TABLE, zone)


def _numbers_of_rows(task: Task, frame: pd.DataFrame, table: Table) -> npt.NDArray[np.int64]:
    """Where no column says them, the first one given is row 0."""
    if ROW not in frame.columns:
        if task.calendar:
            raise DataError(f"{TABLE} has no column {ROW!r}; the calendar needs each row's number")
        return np.arange(len(table.places))
    numbers, _ = as_numbers(frame[ROW].iloc[table.places])
    if not (numbers == numbers[0] + np.arange(len(numbers))).all():
        raise DataError(f"{TABLE}: {ROW!r} does not count the rows of a series, oldest first")
    return numbers.astype(np.int64)


# Tables as files: rows to forecast from, and forecasts. CSV or Parquet, by the name's ending.


CSV, PARQUET = ".csv", ".parquet"


def check_frame_kind(path: Path) -> None:
    """Refuse, before any work, a name whose ending says no kind of table, or one that this
    installation cannot read and write.

    Raises:
        UsageError: it ends otherwise.
        TunerError: pyarrow is missing.
    """
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending not in (CSV, PARQUET):
        raise UsageError(f"{path}: a table is {CSV} or {PARQUET}; end the name with one of them")
    if ending == PARQUET and importlib.util.find_spec("pyarrow") is None:
        raise TunerError(f"{path}: Parquet needs pyarrow: pip install 'tuner[parquet]'")


def read_frame(path: Path, texts: Sequence[str], written: CsvSource | None = None) -> pd.DataFrame:
    """The table in a file, its columns' names stripped of blanks.

    Args:
        path: a .csv or .parquet, or a minus for standard input.
        texts: columns of a CSV that are read as texts; others are numbers where they can be.
        written: the dialect to read a CSV in. Where it does not give the columns of `texts`, or
            there is none, the file's own one is found out.

    Raises:
        UsageError: a name that ends otherwise.
        DataError: no such file, or it cannot be read as what its name says.
    """
    if path != STANDARD_INPUT:
        check_frame_kind(path)
    content = read_bytes(path, remedy="name a table with recent rows")
    source: FileSource = ParquetSource(kind="parquet", path=path)
    if not is_parquet(content, path):
        known = written and written.model_copy(update={"path": path})
        fits = known and _gives(content, known, texts)
        source = known if known and fits else dialect_of(content, path).source
    file = opened(content, source)
    found = {}
    for name, cells in file.columns(file.names, [name for name in file.names if name in texts]):
        found[name] = cells.reset_index(drop=True)
        if name not in texts and cells.dtype.kind not in "biufM":
            numbers, bad = as_numbers(cells, *source.marks)
            found[name] = pd.Series(numbers) if bad is None else cells
    return pd.DataFrame(found)


def _gives(content: bytes, source: CsvSource, texts: Sequence[str]) -> bool:
    """Whether a dialect gives any of the columns."""
    try:
        return not set(texts).isdisjoint(opened(content, source).names)
    except DataError:
        return False


def as_csv(frame: pd.DataFrame) -> str:
    """A table as a CSV; a spreadsheet takes no name in it for a formula."""
    texts = {str(n): each.map(in_csv) for n, each in frame.items() if each.dtype.kind == "O"}
    return frame.assign(**texts).rename(columns=in_csv).to_csv(index=False)


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a table in one step.

    Raises:
        TunerError: the disk does not take it.
    """
    content = io.BytesIO()
    if path.suffix.lower() == PARQUET:
        frame.to_parquet(content, engine="pyarrow", index=False)
    else:
        content.write(as_csv(frame).encode())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, content.getvalue())
    except OSError as error:
        raise TunerError(f"{path}: cannot be written ({error.strerror})") from None


# The rows of a task's own file as a table: read in the file's dialect, its gaps and clocks dealt
# with as the task says.


def rows_of_task(
    path: Path, data_dir: Path | None = None, *, held_back: bool = False
) -> tuple[pd.DataFrame, int]:
    """What the file of a task holds, one row for each series and time, oldest first; and how many
    rows at the end had to be held back.

    Args:
        path: the task file, or the name of a built-in task.
        data_dir: where its data lies, if not where the task says.
        held_back: where columns must be known ahead, and the file has no rows in which only they
            are, its last rows are taken for such: their targets are left out.

    Raises:
        UsageError: no such task, or one of many files.
        DataError: data that is missing or unfit.
    """
    task = load_task(str(path))
    if task.file.apart is not None:
        raise UsageError(f"{path}: has many files, a forecast begins at the end of one; name it")
    series = long_enough(task, open_source(task, data_dir).parse())
    wanted = task.horizon if held_back and task.future_covariates else 0
    parts = [_rows(task, one, ahead=wanted) for one in series]
    return pd.concat([frame for frame, _ in parts]), max(back for _, back in parts)


def _rows(task: Task, one: Series, *, ahead: int) -> tuple[pd.DataFrame, int]:
    parts = [one] if one.ahead is None else [one, one.ahead]
    values = np.concatenate([each.values for each in parts])
    times = np.concatenate([each.timestamps for each in parts])
    measured, known = len(one.values), len(task.columns) - len(task.future_covariates)
    back = max(0, ahead - (len(values) - measured))
    values[measured - back : measured, :known] = np.nan
    frame = pd.DataFrame(values, columns=list(task.columns))
    if task.file.index:
        frame.insert(0, ROW, np.arange(len(frame)))
    else:
        index = pd.DatetimeIndex(times)
        if task.file.timezone is not None:
            index = index.tz_localize("UTC").tz_convert(task.file.timezone)
        frame.insert(0, time_column(task), index)
    if task.file.id_column is not None:
        frame.insert(0, id_column(task), one.name)
    return frame, back


# From recent rows to what a network sees: a window for each series, and the times it forecasts.


def _steps(
    task: Task, name: str, times: npt.NDArray[Any], end: int
) -> tuple[npt.NDArray[Any], Times]:
    """The steps of the window whose history ends before row `end`, (L + T,), in UTC where there is
    a time zone; and what clocks show at them, (L + T,) datetime64[us].

    Args:
        task: how long a window is, and how times follow each other.
        name: of the series, for messages.
        times: of the rows given, (R,), as `observed` has them.
        end: how many of them have values.

    Raises:
        DataError: times that are not one step apart.
    """
    first, source = end - task.input_size, task.file
    if source.index:
        steps = times[first] + np.arange(task.window)
        clock = np.zeros(task.window, dtype="datetime64[us]")
        if task.calendar:
            count = int(steps[-1]) + 1
            where = TimeColumn(source=source, frequency=task.frequency, file=TABLE)
            clock = counted_times(count, where)[count - task.window :]
        return steps, clock
    seen = times[first:end]
    if source.gaps != "skip":  # else the rows that are there are consecutive
        seen = grid(times[first], task.frequency, periods=task.input_size)
    found = np.concatenate([seen, _following(task, times, end)])
    there = times[first : first + task.window]
    wrong = np.flatnonzero(there != found[: len(there)])
    if wrong.size:
        at = int(wrong[0])
        given, expected = pd.Timestamp(there[at]), pd.Timestamp(found[at])
        remedy = "give rows of that frequency, oldest first, without gaps or repetitions"
        if at >= task.input_size:
            remedy = f"future covariates must be those of the {task.horizon} times to forecast"
        said = f"{given} stands where frequency {task.frequency!r} expects {expected}"
        raise DataError(f"series {name!r}: {said}; {remedy}")
    return found, found if source.timezone is None else to_local(found, source.timezone)


def _following(task: Task, times: npt.NDArray[Any], end: int) -> Any:
    """The T steps after the last of the first `end` rows. That one may be off the grid, where gaps
    are skipped: the grid goes on through the place within a step that most rows have.
    """
    last = times[end - 1]
    if task.file.index:
        return last + 1 + np.arange(task.horizon)
    step = min(step_of(task.frequency), DAY)
    place = place_of_most(times[max(0, end - task.input_size) : end], step)
    start = last - np.timedelta64((int(last.astype(np.int64)) - place) % step, "us")
    ahead = grid(start, task.frequency, periods=task.horizon + 2)
    return ahead[ahead > last][: task.horizon]


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
    windows = []
    n_unknown = len(task.target_columns) + len(task.past_covariates)
    for name, one in observed(task, names, frame).items():
        number, times = list(names).index(name), np.asarray(one.times)
        if start is not None:
            one.values[times >= np.asarray(start, dtype=times.dtype), :n_unknown] = np.nan
        known = np.isfinite(one.values[:, : len(task.target_columns)]).any(axis=1)
        end = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        if start is not None and end and (after := _following(task, times, end)[0]) != start:
            said = f"after its last row with values before it would begin at {_shown(after)}"
            raise UsageError(f"series {name!r} cannot be forecast from {start} on: {said}")
        scale = scaling.minimum[number], scaling.scale[number]
        windows.append((number, *_window(task, name, one, end, *scale)))
    series, past, future, times_ahead = (np.stack(each) for each in zip(*windows, strict=True))
    return LastWindows(series=series, past=past, future=future, times=times_ahead)


def _window(
    task: Task, name: str, rows: Table, end: int, minimum: Floats, scale: Floats
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]:
    """(L, C + P + F), (T, F) and (T,) of one series, whose history ends before row `end`."""
    given = rows.values
    if end < task.input_size:
        said = f"has {end} rows with values, the network sees {task.input_size}; give more"
        raise DataError(f"series {name!r} {said}")
    times, clock = _steps(task, name, np.asarray(rows.times), end)
    ahead = task.horizon if task.future_covariates else 0
    if len(given) < end + ahead:
        columns = ", ".join(map(repr, task.future_covariates))
        when = f"the {task.horizon} times to forecast, from {_shown(times[task.input_size])} on"
        raise DataError(f"series {name!r}: {columns} must be known for {when}; add rows")
    window = given[end - task.input_size : end + ahead]
    scaled = (window - minimum) / scale
    _refuse_unfit(task, name, window, scaled, times)
    before, after = np.split(calendar_columns(clock, task.calendar), [task.input_size])
    past = np.hstack([scaled[: task.input_size], before])
    if ahead:
        n_future = len(task.future_covariates)
        after = np.hstack([scaled[task.input_size :, -n_future:], after])
    return past.astype(np.float32), after.astype(np.float32), times[task.input_size :]


def _refuse_unfit(
    task: Task, name: str, window: Floats, scaled: Floats, times: npt.NDArray[Any]
) -> None:
    """Every cell read must be a finite number; targets and past covariates are not read ahead. And
    what the network's arithmetic has no number for would come out as no forecast.
    """
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(scaled.astype(np.float32))
    bad[task.input_size :, : len(task.target_columns) + len(task.past_covariates)] = False
    if bad.any():
        row, column = np.argwhere(bad)[0]
        said = f"has no finite number at {_shown(times[row])}"
        if np.isfinite(window[row, column]):
            said = f"at {_shown(times[row])} is too large a number for the network"
        raise DataError(f"series {name!r}: {task.columns[column]!r} {said}; correct it")


def _shown(step: Any) -> str:
    return str(pd.Timestamp(step)) if isinstance(step, np.datetime64) else f"row {step}"
