"""The rows that a forecast starts from, as a table has them: by series, times and numbers."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.prepare import runs_of
from tuner.data.series import Series, calendar_columns
from tuner.data.source_kinds import EtthSource, FileSource
from tuner.data.sources import open_source
from tuner.data.task import Task, load_task
from tuner.data.times import TimeColumn, Times, counted_times, to_local, to_utc
from tuner.display.text import in_csv
from tuner.errors import DataError, TunerError, UsageError, first_line, unknown_name
from tuner.files.durable import open_plain, put

Floats = npt.NDArray[np.float64]
SERIES = "series"
"""The id column of built-in tasks, whose sources have none."""


ROW = "row"
"""The time column of an index: the number of a row, 0 for the first one of the task's file."""


def is_counted(task: Task) -> bool:
    """Whether the rows of a task's file have numbers in place of times."""
    return isinstance(task.source, FileSource) and task.source.index


def time_column(task: Task) -> str:
    """The column that holds a task's timestamps, or the numbers of its rows."""
    if isinstance(task.source, FileSource):
        return task.source.time_column or ROW
    return "date" if isinstance(task.source, EtthSource) else "ds"


def id_column(task: Task) -> str:
    """The column that names a row's series."""
    return (task.source.id_column if isinstance(task.source, FileSource) else None) or SERIES


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
    if not is_counted(task):
        return timestamp(text)
    if not str(text).isdecimal():
        raise UsageError(f"{str(text)!r} is no number of a row; expected e.g. 7000")
    return int(str(text))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """What is known of one series' targets: times (R,), or numbers of rows, and values (R, C), NaN
    where empty.
    """

    times: pd.Index
    values: Floats


def observed(task: Task, names: Sequence[str], frame: pd.DataFrame) -> Mapping[str, Observed]:
    """The targets of each series in a table as `last_windows` takes it.

    Raises:
        UsageError: series that the network does not know.
        DataError: a column that is missing, or a cell that cannot be read.
    """
    refuse_missing_columns(task, frame)
    return {
        name: Observed(
            times=times_of(task, name, rows),
            values=numbers_of(task, name, rows)[:, : len(task.target_columns)],
        )
        for name, rows in by_series(task, names, frame).items()
    }


def rows_of(
    task: Task, names: Sequence[str], frame: pd.DataFrame, wanted: Sequence[str]
) -> pd.DataFrame:
    """The rows of the series called `wanted`. Where no column names any and one is wanted, all rows
    are its own.

    Raises:
        UsageError: series that the network does not know, or that the table does not have.
    """
    for name in wanted:
        if name not in names:
            raise unknown_name("series", name, names, more="; the network was trained on these")
    column = id_column(task)
    if column not in frame.columns:
        return frame.assign(**{column: wanted[0]}) if len(wanted) == 1 else frame
    there = frame[column].astype(str)
    for name in wanted:
        if not (there == name).any():
            raise UsageError(f"the table has no rows of series {name!r} in column {column!r}")
    return frame[there.isin(list(wanted))]


def refuse_missing_columns(task: Task, frame: pd.DataFrame) -> None:
    """Raises UsageError where it is no table, and DataError where a column is missing that holds
    times or numbers, or one is there twice.
    """
    if not isinstance(frame, pd.DataFrame):
        kind = type(frame).__name__
        raise UsageError(
            f"the table: a DataFrame of pandas is expected, got a value of type {kind}"
        )
    if (twice := frame.columns[frame.columns.duplicated()]).size:
        raise DataError(f"the table has two columns {str(twice[0])!r}; leave one of them out")
    columns = list(task.columns)
    needed = columns if is_counted(task) else [time_column(task), *columns]
    for column in needed:
        if column not in frame.columns:
            there = ", ".join(map(repr, map(str, frame.columns)))
            raise DataError(f"the table has no column {column!r}; there are: {there}")


def by_series(task: Task, names: Sequence[str], frame: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """The rows of each series; all are the one series' where the network knows but one and no
    column names any.

    Raises:
        UsageError: series that the network does not know.
        DataError: no rows, or rows of no series.
    """
    column = id_column(task)
    if column not in frame.columns:
        if len(names) == 1:
            return {names[0]: frame}
        raise UsageError(
            "the table does not say which series its rows belong to; "
            f"add a column {column!r} that holds one of: {', '.join(names)}"
        )
    if (nameless := int(frame[column].isna().sum())) > 0:
        raise DataError(
            f"column {column!r} is empty in {nameless} rows; name the series of each row"
        )
    groups = frame.groupby(column, sort=False, observed=True)
    found = {str(name): rows for name, rows in groups}
    for name in found:
        if name not in names:
            raise unknown_name("series", name, names, more="; the network was trained on these")
    if not found:
        raise DataError("the table has no rows")
    return found


def numbers_of(task: Task, name: str, rows: pd.DataFrame) -> Floats:
    """(R, C + P + F): targets, past and future covariates of one series; NaN where a cell is empty.

    Raises:
        DataError: a cell that is no number.
    """
    columns = list(task.columns)
    for column in columns:
        cells = rows[column]
        # NumPy would make floats of these.
        if getattr(cells.dtype, "categories", cells).dtype.kind in "mMc":
            raise DataError(
                f"series {name!r}: column {column!r} holds {cells.dtype}, expected numbers; name "
                "another column, or convert it"
            )
    try:
        return rows[columns].to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"series {name!r}: a cell of {', '.join(columns)} is no number ({first_line(error)})"
        ) from None


def times_of(task: Task, name: str, rows: pd.DataFrame) -> pd.Index:
    """The times of one series' rows, (R,), without a zone: in UTC where the task has a time zone,
    or the cells have an offset. Of an index, the numbers of the rows; where no column says them,
    the first one given is row 0.

    Raises:
        DataError: a cell that is no time, or no number of a row.
    """
    if is_counted(task):
        return _numbers_of_rows(task, name, rows)
    zone = task.source.timezone if isinstance(task.source, FileSource) else None
    cells = rows[time_column(task)]
    try:
        form = None if pd.api.types.is_datetime64_any_dtype(cells) else "ISO8601"
        if zone is None:
            return pd.DatetimeIndex(pd.to_datetime(cells, format=form, utc=True)).tz_localize(None)
        local = pd.DatetimeIndex(pd.to_datetime(cells, format=form))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"series {name!r}: {time_column(task)!r} holds no timestamps ({first_line(error)})"
        ) from None
    if local.tz is not None:
        return local.tz_convert("UTC").tz_localize(None)
    where = TimeColumn(
        file=f"series {name!r}", column=time_column(task), time_format=None, wide=True, zone=zone
    )
    numbers = range(1, len(local) + 1)
    return pd.DatetimeIndex(to_utc(local.to_numpy().astype("datetime64[us]"), numbers, zone, where))


def _numbers_of_rows(task: Task, name: str, rows: pd.DataFrame) -> pd.Index:
    if ROW not in rows.columns:
        if task.calendar:
            raise DataError(
                f"series {name!r}: the table has no column {ROW!r}; the calendar needs the number "
                "of each row, 0 for the first one of the task's file"
            )
        return pd.RangeIndex(len(rows))
    numbers = pd.to_numeric(rows[ROW], errors="coerce").to_numpy(np.float64)
    if not len(numbers) or not (numbers == numbers[0] + np.arange(len(numbers))).all():
        raise DataError(
            f"series {name!r}: column {ROW!r} does not count its rows; give them oldest first, "
            "without gaps"
        )
    return pd.Index(numbers.astype(np.int64))


# Tables as files: rows to forecast from, and forecasts. CSV or Parquet, by the name's ending.


CSV, PARQUET = ".csv", ".parquet"
EMPTY_CELLS = ["", "NA", "NaN", "nan", "null"]
"""What a number's cell holds where there is none."""


def check_frame_kind(path: Path) -> None:
    """Refuse, before any work, a name whose ending says no kind of table, or one that this
    installation cannot read and write.

    Raises:
        UsageError: it ends otherwise.
        TunerError: pyarrow is missing.
    """
    if path.suffix.lower() not in (CSV, PARQUET):
        raise UsageError(f"{path}: a table is {CSV} or {PARQUET}; end the name with one of them")
    if path.suffix.lower() == PARQUET and importlib.util.find_spec("pyarrow") is None:
        raise TunerError(
            f"{path}: Parquet needs pyarrow: pip install 'tuner[parquet]' (or use {CSV})"
        )


def read_frame(
    path: Path, *, texts: Sequence[str], separator: str = ",", decimal: str = "."
) -> pd.DataFrame:
    """The table in a file, its columns' names stripped of blanks.

    Args:
        path: a .csv or .parquet.
        texts: columns of a CSV that are read as texts; others are numbers where they can be.
        separator: between cells of a CSV.
        decimal: of numbers in a CSV.

    Raises:
        UsageError: no such file, or a name that ends otherwise.
        DataError: it cannot be read as what its name says.
    """
    check_frame_kind(path)
    try:
        with open_plain(path) as file:
            content = file.read()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a table with recent rows") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if path.suffix.lower() == PARQUET:
        return _read_parquet(path, content)
    return _read_csv(path, content, texts, separator, decimal)


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


def _read_parquet(path: Path, content: bytes) -> pd.DataFrame:
    import pyarrow as pa

    try:
        return pd.read_parquet(io.BytesIO(content), engine="pyarrow").rename(
            columns=lambda name: str(name).strip()
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({first_line(error)})") from None


def _read_csv(
    path: Path, content: bytes, texts: Sequence[str], separator: str, decimal: str
) -> pd.DataFrame:
    def read(**options: Any) -> pd.DataFrame:
        source = io.BytesIO(content)
        found: pd.DataFrame = pd.read_csv(source, sep=separator, encoding="utf-8-sig", **options)
        return found

    try:
        header = read(nrows=0)
        _check_separator(path, list(map(str, header.columns)))
        # As the names stand in the first line: pandas renames what is there twice.
        first = read(header=None, nrows=1, dtype=str, keep_default_na=False)
        _refuse_twice(path, [str(name).strip() for name in first.iloc[0]])
        kept = [name for name in header.columns if str(name).strip() in texts]
        return read(
            decimal=decimal,
            dtype=dict.fromkeys(kept, str),
            keep_default_na=False,
            na_values={name: EMPTY_CELLS if name not in kept else [""] for name in header.columns},
        ).rename(columns=lambda name: str(name).strip())
    except ValueError as error:  # of pandas, too; it holds what cannot be decoded
        raise DataError(f"{path}: cannot be read as CSV ({first_line(error)})") from None


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if name and names.count(name) > 1:
            raise DataError(f"{path}: has two columns {name!r}; leave one of them out")


def _check_separator(path: Path, columns: Sequence[str]) -> None:
    if len(columns) > 1:
        return
    for other in (";", "\t", "|", ","):
        if other in columns[0]:
            shown = "tab" if other == "\t" else repr(other)
            raise DataError(f"{path}: its cells look separated by {shown}; say so with --separator")


# The rows of a task's own file as a table: read in the file's dialect, its gaps and clocks dealt
# with as the task says.


def rows_of_task(path: Path, data_dir: Path | None = None) -> pd.DataFrame:
    """What the file of a task holds, one row for each series and time, oldest first.

    Args:
        path: the task file, or the name of a built-in task.
        data_dir: where its data lies, if not where the task says.

    Raises:
        UsageError: no such task, or one of many files.
        DataError: data that is missing or unfit.
    """
    task = load_task(str(path))
    if runs_of(task) is not None:
        raise UsageError(
            f"{path}: task {task.name!r} has many files, and a forecast begins at the end of one; "
            "name that file in place of the task"
        )
    series = open_source(task, data_dir).parse()
    return pd.concat([_rows(task, one, named=len(series) > 1) for one in series])


def _rows(task: Task, one: Series, *, named: bool) -> pd.DataFrame:
    columns = list(task.columns)
    frame = pd.DataFrame(one.values, columns=columns)
    if is_counted(task):
        frame.insert(0, ROW, np.arange(len(frame)))
    else:
        times = pd.DatetimeIndex(one.timestamps)
        zoned = isinstance(task.source, FileSource) and task.source.timezone is not None
        frame.insert(0, time_column(task), times.tz_localize("UTC") if zoned else times)
    if named or (isinstance(task.source, FileSource) and task.source.id_column):
        frame.insert(0, id_column(task), one.name)
    return frame


# From recent rows to what a network sees: a window for each series, and the times it forecasts.


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
    series, past, future, times_ahead = (np.stack(each) for each in zip(*windows, strict=True))
    return LastWindows(series=series, past=past, future=future, times=times_ahead)


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
    scaled = (window - minimum) / scale
    _refuse_unfit(task, name, window, scaled, times)
    calendar = calendar_columns(clock, task.calendar)  # (L + T, ...)
    future = np.hstack([scaled[:, n_targets + n_past :], calendar[: len(scaled)]])
    past = np.hstack([scaled[: task.input_size, : n_targets + n_past], future[: task.input_size]])
    coming = np.hstack(
        [scaled[task.input_size :, n_targets + n_past :], calendar[task.input_size :][:ahead]]
    )
    if not ahead:
        coming = calendar[task.input_size :]
    return past.astype(np.float32), coming.astype(np.float32), times[task.input_size :]


def _refuse_unfit(
    task: Task, name: str, window: Floats, scaled: Floats, times: npt.NDArray[Any]
) -> None:
    """Every cell read must be a finite number; targets and past covariates are not read ahead. And
    what the network's arithmetic has no number for would come out as no forecast.
    """
    gaps = ~np.isfinite(window)
    gaps[task.input_size :, : len(task.target_columns) + len(task.past_covariates)] = False
    with np.errstate(over="ignore"):
        too_large = np.isinf(scaled.astype(np.float32)) & np.isfinite(scaled)
    for bad, what, remedy in (
        (gaps, "has no finite number at {}", "fill it in"),
        (too_large, "at {} is too large a number for the network", "correct it"),
    ):
        if bad.any():
            row, column = np.argwhere(bad)[0]
            said = what.format(_shown(times[row]))
            raise DataError(f"series {name!r}: {task.columns[column]!r} {said}; {remedy}")


def _shown(step: Any) -> str:
    return str(pd.Timestamp(step)) if isinstance(step, np.datetime64) else f"row {step}"
