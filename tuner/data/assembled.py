"""The rows of a file as the series of a task: each by itself, in order, dated, its gaps treated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.series import Series
from tuner.data.source_kinds import FileSource
from tuner.data.task import Task
from tuner.data.times import (
    TimeColumn,
    Times,
    check_order,
    check_times,
    counted_times,
    off_the_grid,
)
from tuner.errors import DataError

# Missing rows and empty cells of a series, filled.


Floats = npt.NDArray[np.float64]


def with_missing_rows(
    times: Times, values: Floats, rows: Sequence[int], frequency: str, where: TimeColumn
) -> tuple[Times, Floats]:
    """Every timestamp that `frequency` gives between the first and the last, with its values; NaN
    in those that the file lacks.

    Args:
        times: ascending, (R,).
        values: (R, C).
        rows: where each stands in the file.
        frequency: a pandas alias.
        where: the time column.

    Raises:
        DataError: a timestamp that is none of the frequency's, or more rows to make up than there
            are.
    """
    grid = _grid(times, frequency, where)
    if not len(grid) or grid[0] != times[0]:
        following = pd.date_range(pd.Timestamp(times[0]), periods=1, freq=frequency)[0]
        expected = np.datetime64(following.to_pydatetime(), "us")
        raise DataError(off_the_grid(times[0], rows[0], expected, frequency, where))
    places = np.searchsorted(grid, times)
    known = np.minimum(places, len(grid) - 1)
    strange = np.flatnonzero(grid[known] != times)
    if strange.size:
        first = int(strange[0])
        raise DataError(
            f"{where.at(rows[first])}: {where.show(times[first])} does not fit frequency "
            f"{frequency!r}, which has {where.show(grid[places[first] - 1])} before it; correct "
            "the row or the frequency, or set gaps = 'skip' under [source]"
        )
    if len(grid) > 2 * len(times):
        raise DataError(_too_many(len(grid) - len(times), len(times), where))
    filled = np.full((len(grid), values.shape[1]), np.nan)
    filled[places] = values
    return grid, filled


def fill_cells(values: Floats, how: Literal["forward", "interpolate"]) -> Floats:
    """`values`, (R, C), without its NaN: the value before; or a line to the next one, the value
    before where there is none. The first row has no NaN.
    """
    filled = values.copy()
    positions = np.arange(len(values))
    for column in range(values.shape[1]):
        known = np.isfinite(values[:, column])
        if how == "forward":
            last = np.maximum.accumulate(np.where(known, positions, 0))
            filled[:, column] = values[last, column]
        else:
            filled[:, column] = np.interp(positions, positions[known], values[known, column])
    return filled


def _grid(times: Times, frequency: str, where: TimeColumn) -> Times:
    first, last = pd.Timestamp(times[0]), pd.Timestamp(times[-1])
    offset = pd.tseries.frequencies.to_offset(frequency)
    if isinstance(offset, pd.offsets.Tick):
        steps = int((times[-1] - times[0]) // np.timedelta64(max(1, offset.nanos // 1000), "us"))
        if steps + 1 > 2 * len(times):  # before the memory for them is asked for
            raise DataError(_too_many(steps + 1 - len(times), len(times), where))
    grid: Times = pd.date_range(first, last, freq=frequency).to_numpy().astype("datetime64[us]")
    return grid


def _too_many(missing: int, there: int, where: TimeColumn) -> str:
    return (
        f"{where.file}: {missing:,} rows are missing between {there:,} that are there, and more "
        "than half would be made up; correct the frequency or the times, or set gaps = 'skip' "
        "under [source]"
    )


Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The used columns of a file but its times: targets, past and future covariates, (R, C + P +
    F), NaN where a cell that may be filled is empty; the number of each row for messages; and the
    series that each belongs to, None where there is one.
    """

    values: Floats
    rows: Sequence[int]
    ids: Sequence[str] | None


def time_column_of(source: FileSource) -> TimeColumn:
    """The time column of a file, for messages."""
    return TimeColumn(
        file=str(source.path),
        column=source.time_column or "",
        time_format=source.time_format,
        wide=source.id_column is None,
        zone=source.timezone,
    )


def assembled(
    table: Table,
    source: FileSource,
    task: Task,
    *,
    times: Times | None = None,
    dated: npt.NDArray[np.bool_] | None = None,
) -> tuple[Series, ...]:
    """The series of a table, in the order in which they first appear.

    Args:
        table: what was read.
        source: how gaps are treated, and where times are.
        task: its frequency, and its name where there is one series.
        times: UTC, or local where `dated` says no, (R,); None for an index.
        dated: which of them came with their offset from UTC, (R,); None for all.

    Raises:
        DataError: times out of order or off the frequency, or gaps that are not to be treated, or
            cannot be.
    """
    if not len(table.rows):
        raise DataError(f"{source.path}: the file has no rows")
    found = []
    for name, members in _members(table, source, task.name).items():
        mine = Table(values=table.values[members], rows=[table.rows[i] for i in members], ids=None)
        if times is None:
            dates = counted_times(len(members), source.start, task.frequency, str(source.path))
            found.append(_series(name, dates, mine.values, mine, source, task))
        else:
            offsets = None if dated is None else dated[members]
            found.append(_dated(name, times[members], offsets, mine, source, task))
    return tuple(found)


def _dated(
    name: str,
    times: Times,
    dated: npt.NDArray[np.bool_] | None,
    table: Table,
    source: FileSource,
    task: Task,
) -> Series:
    """A series whose file has times."""
    where, values = time_column_of(source), table.values
    if source.timezone is not None and dated is not None:
        times = _in_utc(times, dated, table.rows, source.timezone, where)
    if source.gaps == "refuse":
        check_times(times, table.rows, task.frequency, where)
    else:
        check_order(times, table.rows, where)
    if source.gaps == "fill":
        times, values = with_missing_rows(times, values, table.rows, task.frequency, where)
    return _series(name, times, values, table, source, task)


def _series(
    name: str, times: Times, values: Floats, table: Table, source: FileSource, task: Task
) -> Series:
    """The series with its empty cells filled; `values` may have more rows than the table."""
    cells = int(np.isnan(table.values).sum())
    if source.gaps == "fill":
        _refuse_leading(table, source, task)
        values = fill_cells(values, source.fill)
    clock = None
    if source.timezone is not None:
        from tuner.data.times import to_local

        clock = to_local(times, source.timezone)
    return Series(
        name=name,
        timestamps=times,
        values=values,
        clock=clock,
        filled_rows=len(values) - len(table.rows),
        filled_cells=cells,
    )


def _in_utc(
    times: Times,
    dated: npt.NDArray[np.bool_],
    rows: Sequence[int],
    zone: str,
    where: TimeColumn,
) -> Times:
    if dated.all():
        return times
    if dated.any():
        first = int(np.flatnonzero(dated != dated[0])[0])
        raise DataError(
            f"{where.at(rows[first])}: some times have an offset from UTC and some have none; "
            "write all of them in one way"
        )
    from tuner.data.times import to_utc

    return to_utc(times, rows, zone, where)


def _refuse_leading(table: Table, source: FileSource, task: Task) -> None:
    empty = np.flatnonzero(np.isnan(table.values[0]))
    if empty.size:
        columns = (*task.target_columns, *task.past_covariates, *task.future_covariates)
        raise DataError(
            f"{source.path}, row {table.rows[0]}, column {columns[int(empty[0])]!r}: the cell is "
            "empty, and the series has no value before it to fill it with; leave out the rows "
            "before the first value, or the column"
        )


def _members(table: Table, source: FileSource, task_name: str) -> dict[str, Positions]:
    """Positions of each series' rows, series in the order in which they first appear."""
    if table.ids is None:
        return {task_name: np.arange(len(table.rows))}
    members: dict[str, list[int]] = {}
    for position, name in enumerate(table.ids):
        if not name:
            raise DataError(
                f"{source.path}, row {table.rows[position]}, column {source.id_column!r}: the cell "
                "is empty; name the row's series"
            )
        members.setdefault(name, []).append(position)
    return {name: np.asarray(positions) for name, positions in members.items()}
