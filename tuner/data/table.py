"""The rows of a file, or of a table that a forecast starts from, as the series of a task: each by
itself, in order, dated, its gaps treated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.calendars import MOST_MISSING, Times, grid, rounded, step_of
from tuner.data.dialect import Floats, as_numbers, marks_of, plain
from tuner.data.open_file import OpenFile, Positions, opened, refuse_other_dialect
from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource, FileSource, TypedSource, listed
from tuner.data.times import (
    Lines,
    TimeColumn,
    check_order,
    check_steps,
    counted_times,
    parse_times,
    refuse_step,
    to_local,
    to_utc,
)
from tuner.errors import DataError
from tuner.files.plain import excerpt

if TYPE_CHECKING:
    from tuner.data.task import Task


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The used columns of a file: targets, past and future covariates, (R, C + P + F), NaN where a
    cell is empty; where each row stands in the file, from 0 on; and the series that each belongs
    to, None where there is one. `times`, (R,), are UTC where they are `dated`: they came with an
    offset, and `clock` is what is written; else local. Of an index they are None, or the numbers
    of its rows.
    """

    file: OpenFile
    values: Floats
    places: Positions
    ids: Sequence[str] | None = None
    times: npt.NDArray[Any] | None = None
    clock: Times | None = None
    dated: bool = False

    @property
    def rows(self) -> Positions:
        """The number of each row, for messages."""
        return self.file.rows[self.places]

    def part(self, which: slice | Positions) -> Table:
        """Some of its rows, of one series."""
        values, places = self.values[which], self.places[which]
        times = None if self.times is None else self.times[which]
        return replace(self, values=values, places=places, ids=None, times=times)

    def by_series(self, where: TimeColumn) -> dict[str | None, Table]:
        """The rows of each series, their times in UTC, on the grid where they are to be rounded.

        Raises:
            DataError: a row of no series, or a time that no clock showed.
        """
        source = where.source
        parts: dict[str | None, Table] = {None: self}
        if self.ids is not None:
            parts = {name: self.part(mine) for name, mine in positions_of_each(self.ids).items()}
        if "" in parts:
            at = where.at(parts[""].rows[0], "/".join(listed(source.id_column)))
            raise DataError(f"{at}: the cell is empty; name the row's series")
        for name, part in parts.items():
            times = part.times
            if times is not None and source.timezone is not None and not part.dated:
                times = to_utc(times, part.rows, where)
            if times is not None and source.round_times:
                times = rounded(times, where.frequency)
            parts[name] = replace(part, times=times)
        return parts


def positions_of_each(ids: Sequence[str]) -> dict[str, Positions]:
    """Where the rows of each series are, the series in the order in which they first appear."""
    codes, names = pd.factorize(np.asarray(ids, dtype=object))
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return dict(zip(map(str, names), members, strict=True))


def parse_file(content: bytes, source: FileSource, task: Task) -> tuple[Series, ...]:
    """The series in a file's content, as `series_of` its columns.

    Raises:
        DataError: one line naming the file and, where there is one, the row and the column.
    """
    file = opened(content, source)
    if isinstance(source, CsvSource) and not {*task.columns} & {*file.names}:
        refuse_other_dialect(content, source)
    return series_of(file, TimeColumn(source=source, frequency=task.frequency), task)


def series_of(file: OpenFile, where: TimeColumn, task: Task) -> tuple[Series, ...]:
    """The series in a file (see `FileSource` for the two layouts), in the order in which they first
    appear. Columns the task does not name are ignored.

    Raises:
        DataError: cells that cannot be read, times out of order or off the frequency, or gaps that
            are not to be treated, or cannot be.
    """
    parts = table_of(file, where, task).by_series(where)
    return tuple(_series(name or task.name, part, where, task) for name, part in parts.items())


def table_of(file: OpenFile, where: TimeColumn, task: Task) -> Table:
    """The columns of a file that a task uses.

    Raises:
        DataError: a column that is missing, or a cell that cannot be read.
    """
    source = where.source
    times, ids = listed(source.time_column), listed(source.id_column)
    values = np.empty((len(file.rows), len(task.columns)))
    keys: dict[str, pd.Series[Any]] = {}
    for name, cells in file.columns([*times, *ids, *task.columns], [*times, *ids]):
        if name in (*times, *ids):
            keys[name] = cells
            continue
        kind = cells.dtype.kind
        if kind in "mMc" or (isinstance(source, TypedSource) and kind not in "biuf"):
            holds = cells.attrs.get("kind", cells.dtype)
            raise DataError(f"{where.label}, column {name!r}: holds {holds}, expected numbers")
        numbers, bad = as_numbers(cells, *source.marks)
        if bad is not None:
            raise DataError(_not_a_number(file, bad, name, where))
        values[:, task.columns.index(name)] = numbers
    table = Table(file=file, values=values, places=np.arange(len(file.rows)))
    if ids:
        table = replace(table, ids=joined_ids([keys[name] for name in ids]))
    if times:
        found, clock, dated = times_of_cells([keys[name] for name in times], file.rows, where)
        table = replace(table, times=found, clock=clock, dated=dated)
    return table


def _not_a_number(file: OpenFile, place: int, column: str, where: TimeColumn) -> str:
    at, source = where.at(file.rows[place], column), where.source
    cell = file.cell(place, column)
    if not cell:
        return f"{at}: the cell is empty; every cell of a used column must hold a finite number"
    marks = marks_of([cell])
    if isinstance(source, CsvSource) and marks not in (None, source.marks):
        decimal, thousands = marks or ("", "")
        what = f"decimal {'comma' if decimal == ',' else 'point'}"
        also = f" and thousands = {thousands!r}" if thousands else ""
        return (
            f"{at}: {excerpt(cell)!r} looks like a {what}: set decimal = {decimal!r}{also} "
            "under [source] in the task file"
        )
    return f"{at}: {excerpt(cell)!r} is not a finite number; correct or remove it"


def joined_ids(parts: Sequence[pd.Series[Any]]) -> list[str]:
    """The names of series that stand in one column, or in several."""
    rows = zip(*(plain(part).tolist() for part in parts), strict=True)
    return ["/".join(filter(None, row)) for row in rows]


def joined_times(parts: Sequence[pd.Series[Any]]) -> pd.Series[Any]:
    """Cells of one column, or of several, as texts; a column of moments stays what it is."""
    if len(parts) == 1 and parts[0].dtype.kind == "M":
        return parts[0].reset_index(drop=True)
    whole = plain(parts[0])
    for part in parts[1:]:
        whole = whole + " " + plain(part)
    return whole.reset_index(drop=True)


def times_of_cells(
    parts: Sequence[pd.Series[Any]], rows: Lines, where: TimeColumn
) -> tuple[Times, Times, bool]:
    """The times in one column, or in several, (R,), as `tuner.data.times.parse_times`.

    Raises:
        DataError: a cell that is none.
    """
    cells, kind = joined_times(parts), parts[0].attrs.get("kind", "string")
    as_written = len(parts) > 1 or cells.dtype.kind == "M" or where.source.time_format is not None
    if not as_written and "string" not in kind:
        raise DataError(
            f"{where.label}, column {where.column!r}: holds {kind}, expected timestamps; convert "
            "it, or set index = true under [source]"
        )
    return parse_times(cells, rows, where)


def _series(name: str, table: Table, where: TimeColumn, task: Task) -> Series:
    """A series, its gaps treated. Rows at its end of which only what is known ahead is there are
    no part of it, but what a forecast goes on with.
    """
    source, whole, measured = where.source, table, len(table.rows)
    if table.times is None:
        every = counted_times(measured, where)
        whole = table = replace(table, times=every)
    if task.future_covariates:
        known = np.isfinite(table.values[:, : len(task.target_columns)]).any(axis=1)
        measured = int(np.flatnonzero(known)[-1]) + 1 if known.any() else measured
        table = table.part(slice(measured))
    times, values, rows = np.asarray(table.times), table.values, table.rows
    _refuse_empty(table, where, task)
    if source.time_column is not None:
        check_order(times, rows, where)
        if source.gaps == "refuse":
            check_steps(times, rows, where)
        elif source.gaps == "fill":
            times, values = _with_missing_rows(times, values, rows, where)
    if source.gaps == "fill":
        cells = pd.DataFrame(values)
        values = (cells.ffill() if source.fill == "forward" else cells.interpolate()).to_numpy()
    ahead, later = None, whole.part(slice(measured, None))
    if len(later.rows) and later.times is not None:
        ahead = Series(name=name, timestamps=later.times, values=later.values)
    return Series(
        name=name,
        timestamps=times,
        values=values,
        clock=None if source.timezone is None else to_local(times, source.timezone),
        filled_rows=len(values) - len(rows),
        filled_cells=int(np.isnan(table.values).sum()),
        ahead=ahead,
    )


def _refuse_empty(table: Table, where: TimeColumn, task: Task) -> None:
    """An empty cell; where they are filled, one of the first row, which has no value before it."""
    filled = where.source.gaps == "fill"
    empty = np.argwhere(np.isnan(table.values[:1] if filled else table.values))
    if not empty.size:
        return
    row, column = int(empty[0][0]), task.columns[int(empty[0][1])]
    if not filled:
        raise DataError(_not_a_number(table.file, int(table.places[row]), column, where))
    raise DataError(
        f"{where.at(table.rows[0], column)}: the cell is empty, and the series has no value before "
        "it to fill it with; leave out the rows before the first value, or the column"
    )


def _with_missing_rows(
    times: Times, values: Floats, rows: Lines, where: TimeColumn
) -> tuple[Times, Floats]:
    """Every timestamp that the frequency gives between the first and the last of `times`, which
    ascend, (R,), with its values; NaN in those that the file lacks.

    Raises:
        DataError: a timestamp that is none of the frequency's, or more rows to make up than there
            are.
    """
    frequency = where.frequency
    count = int((times[-1] - times[0]).astype(np.int64)) // step_of(frequency) + 1
    made: Times | None = None
    if count <= (MOST_MISSING if "[" in frequency else 3) * len(times):
        made = grid(times[0], frequency, last=times[-1])  # of more, nobody asks the memory
        count = len(made)
        strange = np.flatnonzero(~np.isin(times, made))
        if strange.size:
            first = int(strange[0])
            expected = grid(times[max(0, first - 1)], frequency, periods=2)[min(first, 1)]
            remedy = "correct the row or the frequency, or set gaps = 'skip' under [source]"
            refuse_step(first, expected, "", remedy, times, rows, where)
    if made is None or count > 2 * len(times):
        raise DataError(
            f"{where.label}: {count - len(times):,} rows are missing between {len(times):,} that "
            "are there; correct the frequency or the times, or set gaps = 'skip' under [source]"
        )
    return made, pd.DataFrame(values, index=times).reindex(made).to_numpy()
