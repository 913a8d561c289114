"""The user's file, CSV or Parquet: its used columns, read within limits so that an error names the
row and the column, and its rows as the series of a task.

A CSV's cells are converted by Python's own float, so that the values, and with them the data hash,
do not depend on the version of pandas. pandas reads the timestamps and knows the frequencies.
pyarrow is an extra: most people's files are CSVs.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource, FileSource
from tuner.data.task import Task
from tuner.data.times import (
    TimeColumn,
    Times,
    check_order,
    check_times,
    counted_times,
    have_offsets,
    off_the_grid,
    parse_times,
    to_local,
    to_utc,
)
from tuner.errors import DataError, first_line
from tuner.files.durable import open_plain
from tuner.files.plain import excerpt

# The rows of a file as the series of a task: each by itself, in order, dated, its gaps treated.


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
    """The used columns of a file: targets, past and future covariates, (R, C + P + F), NaN where a
    cell that may be filled is empty; the number of each row for messages; and the series that each
    belongs to, None where there is one. `times` are UTC, or local where `dated` says no, (R,); None
    for an index. `dated` are those that came with their offset from UTC, (R,).
    """

    values: Floats
    rows: Sequence[int]
    ids: Sequence[str] | None = None
    times: Times | None = None
    dated: npt.NDArray[np.bool_] | None = None


def time_column_of(source: FileSource) -> TimeColumn:
    """The time column of a file, for messages."""
    return TimeColumn(
        file=str(source.path),
        column=source.time_column or "",
        time_format=source.time_format,
        wide=source.id_column is None,
        zone=source.timezone,
    )


def assembled(table: Table, source: FileSource, task: Task) -> tuple[Series, ...]:
    """The series of a table, in the order in which they first appear.

    Args:
        table: what was read.
        source: how gaps are treated, and where times are.
        task: its frequency, and its name where there is one series.

    Raises:
        DataError: times out of order or off the frequency, or gaps that are not to be treated, or
            cannot be.
    """
    if not len(table.rows):
        raise DataError(f"{source.path}: the file has no rows")
    found = []
    for name, members in _members(table, source, task.name).items():
        mine = Table(
            values=table.values[members],
            rows=[table.rows[i] for i in members],
            times=None if table.times is None else table.times[members],
            dated=None if table.dated is None else table.dated[members],
        )
        found.append(_series(name, mine, source, task))
    return tuple(found)


def _series(name: str, table: Table, source: FileSource, task: Task) -> Series:
    """A series, its gaps treated."""
    where, values, rows = time_column_of(source), table.values, table.rows
    if table.times is None:
        times = counted_times(len(rows), source.start, task.frequency, str(source.path))
    else:
        times = _in_utc(table.times, table, where)
        if source.gaps == "refuse":
            check_times(times, rows, task.frequency, where)
        else:
            check_order(times, rows, where)
        if source.gaps == "fill":
            times, values = with_missing_rows(times, values, rows, task.frequency, where)
    if source.gaps == "fill":
        _refuse_leading(table, source, task)
        values = fill_cells(values, source.fill)
    return Series(
        name=name,
        timestamps=times,
        values=values,
        clock=None if source.timezone is None else to_local(times, source.timezone),
        filled_rows=len(values) - len(rows),
        filled_cells=int(np.isnan(table.values).sum()),
    )


def _in_utc(times: Times, table: Table, where: TimeColumn) -> Times:
    dated = table.dated
    if where.zone is None or dated is None or dated.all():
        return times
    if dated.any():
        first = int(np.flatnonzero(dated != dated[0])[0])
        raise DataError(
            f"{where.at(table.rows[first])}: some times have an offset from UTC and some have "
            "none; write all of them in one way"
        )
    return to_utc(times, table.rows, where.zone, where)


def _refuse_leading(table: Table, source: FileSource, task: Task) -> None:
    empty = np.flatnonzero(np.isnan(table.values[0]))
    if empty.size:
        column = task.columns[int(empty[0])]
        raise DataError(
            f"{source.path}, row {table.rows[0]}, column {column!r}: the cell is "
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


# A CSV as text, its rows, and its used columns, cell by cell.


@dataclass(frozen=True, slots=True)
class Cells:
    """The used columns as text, blanks stripped: a list of cells per column; `rows` are lines of
    the file.
    """

    columns: dict[str, list[str]]
    rows: list[int]


def decode(content: bytes, source: CsvSource) -> str:
    """The file as text.

    Raises:
        DataError: its bytes are not in the encoding of `source`.
    """
    encoding = (
        "utf-8-sig"
        if source.encoding.lower().replace("_", "-") in {"utf-8", "utf8"}
        else source.encoding
    )
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        row = content[: error.start].count(b"\n") + 1
        guess = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
        raise DataError(
            f"{source.path}, row {row}: is not {source.encoding} text; set encoding (perhaps "
            f"{guess!r}) under [source] "
            "in the task file or save the file as UTF-8"
        ) from None


def column_name(cell: str, position: int) -> str:
    """What the column number `position` (from 0) is called: as its cell in the header says, or by
    its number where that is empty.
    """
    return cell.strip() or f"column_{position + 1}"


def read_cells(text: str, source: CsvSource, wanted: Sequence[str] | None = None) -> Cells:
    """The columns `wanted` of a CSV; None: all whose name is there once.

    Raises:
        DataError: a column that is not there, or a row that is not like the others.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=source.separator)
    row = 1
    try:
        first = next(reader)
        named = first if source.header else [""] * len(first)
        header = [column_name(cell, position) for position, cell in enumerate(named)]
        if not source.header:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=source.separator)
        if wanted is None:
            wanted = [name for name, times in Counter(header).items() if times == 1]
        places = _places(header, text, source, wanted)
        columns: dict[str, list[str]] = {name: [] for name in wanted}
        rows: list[int] = []
        row = reader.line_num + 1
        blank = 0
        for line in reader:
            if not any(cell.strip() for cell in line):
                blank = (
                    blank or row
                )  # blank lines at the end are harmless, before data they are not
            elif blank:
                raise DataError(
                    f"{source.path}, row {blank}: the row is blank; remove it or fill it in"
                )
            elif len(line) != len(header):
                raise DataError(_ragged(source, row, len(line), len(header)))
            else:
                for name, place in zip(wanted, places, strict=True):
                    columns[name].append(line[place].strip())
                rows.append(row)
            row = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{source.path}, row {row}: cannot be read as CSV ({error})") from None
    if not rows:
        raise DataError(f"{source.path}: the file has a header but no rows")
    return Cells(columns, rows)


def _ragged(source: CsvSource, row: int, found: int, expected: int) -> str:
    first = "header" if source.header else "first row"
    problem = f"{source.path}, row {row}: the row has {found} cells, the {first} has {expected}"
    if found > expected and source.separator == ",":
        return (
            f"{problem}; numbers with decimal commas need another separator: "
            "set separator = ';' and decimal = ','"
        )
    return f"{problem}; correct the row"


def _places(header: list[str], text: str, source: CsvSource, wanted: Sequence[str]) -> list[int]:
    missing = [name for name in wanted if name not in header]
    if missing:
        dialect = _other_dialect(text, source, wanted)
        if dialect:
            raise DataError(f"{source.path}: {dialect} under [source] in the task file")
        raise DataError(
            f"{source.path}, row 1: missing column {missing[0]!r}; there are: "
            f"{', '.join(map(repr, header))}"
        )
    for name in wanted:
        if header.count(name) > 1:
            raise DataError(
                f"{source.path}, row 1: column {name!r} is there {header.count(name)} times; "
                "rename one"
            )
    return [header.index(name) for name in wanted]


def _other_dialect(text: str, source: CsvSource, wanted: Sequence[str]) -> str | None:
    """The remedy where another separator would give the wanted columns; None where none would."""
    lines = text.splitlines()
    names = {";": "semicolon", "\t": "tab", "|": "bar", ",": "comma"}
    for separator, called in names.items():
        if separator == source.separator or separator not in lines[0]:
            continue
        header = next(csv.reader([lines[0]], delimiter=separator))
        if not set(wanted) & {name.strip() for name in header}:
            continue
        shown = "\\t" if separator == "\t" else separator
        second = next(csv.reader(lines[1:2], delimiter=separator), [])
        if source.decimal == "." and any(
            re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell) for cell in second
        ):
            return (
                f"looks {called}-separated with decimal commas: set separator = "
                f"{_toml(shown)} "
                "and decimal = ','"
            )
        return f"looks {called}-separated: set separator = {_toml(shown)}"
    return None


def _toml(separator: str) -> str:
    """A separator as it is written in the task file: an escape needs double quotes there."""
    return f'"{separator}"' if "\\" in separator else f"'{separator}'"


MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
"""What stands in a cell that has no value, in small letters; refused unless gaps are filled."""


def read_bytes(path: Path, *, beside: str = "") -> bytes:
    """The file's content; `beside` says where else it was looked for.

    Raises:
        DataError: missing, a folder, unreadable, or empty.
    """
    try:
        with open_plain(path) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path}: no such file{beside}; correct 'path' under [source] in the task file"
        ) from None
    except IsADirectoryError:
        raise DataError(
            f"{path}: is a folder; 'path' under [source] must name a CSV or a Parquet file"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({reason})") from None
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise DataError(f"{path}: the file is empty; a header row and data rows are expected")
    return content


def parse_table(content: bytes, source: CsvSource, task: Task) -> tuple[Series, ...]:
    """The series in a CSV's content (see `FileSource` for the two layouts). Columns the task does
    not name are ignored.

    Raises:
        DataError: one line naming the file and, where there is one, the row and the column.
    """
    keys = [column for column in (source.time_column, source.id_column) if column is not None]
    cells = read_cells(decode(content, source), source, (*keys, *task.columns))
    table = Table(
        values=np.stack([_numbers(cells, column, source) for column in task.columns], axis=1),
        rows=cells.rows,
        ids=None if source.id_column is None else cells.columns[source.id_column],
    )
    if source.time_column is not None:
        texts, where = cells.columns[source.time_column], time_column_of(source)
        times = parse_times(texts, cells.rows, where)
        table = replace(table, times=times, dated=have_offsets(texts, where))
    return assembled(table, source, task)


def is_missing(cell: str) -> bool:
    """Whether a cell says that it has no value."""
    return cell.lower() in MISSING


def _numbers(cells: Cells, column: str, source: CsvSource) -> npt.NDArray[np.float64]:
    values = np.empty(len(cells.rows), dtype=np.float64)
    for position, cell in enumerate(cells.columns[column]):
        if source.gaps == "fill" and is_missing(cell):
            values[position] = math.nan
            continue
        try:
            value = float(cell if source.decimal == "." else cell.replace(",", "."))
        except ValueError:
            value = math.nan
        if (
            not math.isfinite(value) or "_" in cell
        ):  # Python reads 1_000 as a number, a careful reader does not
            raise DataError(_not_a_number(cell, column, cells.rows[position], source))
        values[position] = value
    return values


def _not_a_number(cell: str, column: str, row: int, source: CsvSource) -> str:
    where = f"{source.path}, row {row}, column {column!r}"
    if not cell:
        return f"{where}: the cell is empty; every cell of a used column must hold a finite number"
    if source.decimal == "." and re.fullmatch(r"[+-]?\d+,\d+", cell):
        return (
            f"{where}: {cell!r} looks like a decimal comma: "
            "set decimal = ',' under [source] in the task file"
        )
    return f"{where}: {cell!r} is not a finite number; correct or remove it"


# The user's Parquet file: the used columns, within limits, as numbers, times and names.


MOST_CELLS = 100_000_000
"""Numbers in the used columns: a small file may claim to hold more than any memory."""
MOST_COLUMNS = 20_000


def parse_parquet(content: bytes, source: FileSource, task: Task) -> tuple[Series, ...]:
    """The series in a Parquet file's content. Columns the task does not name are ignored; a row's
    number counts from 1.

    Raises:
        DataError: one line naming the file and, where there is one, the row and the column.
    """
    keys = [column for column in (source.time_column, source.id_column) if column is not None]
    found = read_columns(content, str(source.path), [*keys, *task.columns])
    rows = range(1, len(next(iter(found.values()))) + 1)
    numbers = [_numbers_of_column(found[column], column, source) for column in task.columns]
    table = Table(
        values=np.stack(numbers, axis=1),
        rows=rows,
        ids=None if source.id_column is None else _names(found[source.id_column], source),
    )
    if source.time_column is not None:
        times, dated = _times(found[source.time_column], source)
        table = replace(table, times=times, dated=dated)
    return assembled(table, source, task)


def open_parquet(content: bytes, file: str) -> Any:
    """The file as pyarrow opens it, its counts within limits.

    Raises:
        DataError: pyarrow is not installed, or the file is no Parquet file, or too large.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{file}: Parquet files need pyarrow: pip install 'tuner[parquet]' (or write the table "
            "as a CSV)"
        ) from None
    with _readable(file, pa.ArrowException):
        opened = pq.ParquetFile(io.BytesIO(content))
        columns = opened.metadata.num_columns
    if columns > MOST_COLUMNS:
        raise DataError(
            f"{file}: has {columns:,} columns, at most {MOST_COLUMNS:,} are read; split the file"
        )
    return opened


@contextmanager
def _readable(file: str, arrows: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (arrows, OSError, ValueError, MemoryError) as error:
        raise DataError(
            f"{file}: cannot be read as Parquet ({excerpt(first_line(error), at_most=120)}); write "
            "the file again"
        ) from None


def read_columns(content: bytes, file: str, wanted: list[str]) -> dict[str, Any]:
    """Columns of a Parquet file as arrays of pyarrow, by name.

    Raises:
        DataError: as `open_parquet`; or a column that is not there, or a damaged file.
    """
    opened = open_parquet(content, file)
    import pyarrow as pa

    there = opened.schema_arrow.names
    for name in wanted:
        if name not in there:
            listing = excerpt(", ".join(map(repr, there)), at_most=300)
            raise DataError(f"{file}: missing column {name!r}; there are: {listing}")
        if there.count(name) > 1:
            raise DataError(
                f"{file}: column {name!r} is there {there.count(name)} times; rename one"
            )
    if opened.metadata.num_rows * max(1, len(wanted)) > MOST_CELLS:
        raise DataError(
            f"{file}: has {opened.metadata.num_rows:,} rows in {len(wanted)} used columns, at most "
            f"{MOST_CELLS:,} cells are read; split the file"
        )
    with _readable(file, pa.ArrowException):
        table = opened.read(columns=wanted)
    if not table.num_rows:
        raise DataError(f"{file}: the file has no rows")
    return {name: table.column(name) for name in wanted}


def is_number(kind: Any) -> bool:
    """Whether a type of pyarrow is one of numbers."""
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def as_numbers(column: Any) -> npt.NDArray[np.float64]:
    """A column of numbers as float64, NaN where it has none."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type):
        texts = [None if cell is None else float(cell) for cell in column.to_pylist()]
        return np.array([np.nan if each is None else each for each in texts], dtype=np.float64)
    arrays = [chunk.to_numpy(zero_copy_only=False).astype(np.float64) for chunk in column.chunks]
    return np.concatenate(arrays)


def _numbers_of_column(column: Any, name: str, source: FileSource) -> npt.NDArray[np.float64]:
    if not is_number(column.type):
        raise DataError(
            f"{source.path}, column {name!r}: holds {excerpt(str(column.type))}, expected numbers; "
            "name another column, or convert it"
        )
    values = as_numbers(column)
    bad = ~np.isfinite(values)
    if source.gaps == "fill":
        bad &= ~np.isnan(values)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        what = "is empty" if np.isnan(values[row]) else f"holds {values[row]}"
        raise DataError(
            f"{source.path}, row {row + 1}, column {name!r}: the cell {what}; every cell of a used "
            "column must hold a finite number"
        )
    return values


def as_times(column: Any) -> tuple[Times, bool] | None:
    """A column of timestamps or dates without empty cells, and whether they are UTC; None where it
    is another.
    """
    import pyarrow as pa

    kind = column.type
    if column.null_count or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return None
    plain = column.cast(pa.timestamp("us"), safe=False) if pa.types.is_date(kind) else column
    parts = [chunk.to_numpy(zero_copy_only=False) for chunk in plain.chunks]
    times: Times = np.concatenate(parts).astype("datetime64[us]")
    return times, bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def texts_of(column: Any) -> list[str] | None:
    """A column of text, or of whole numbers that are names; None where it is another."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (_is_text(column.type) or pa.types.is_integer(column.type)):
        return None
    return ["" if cell is None else str(cell).strip() for cell in column.to_pylist()]


def _names(column: Any, source: FileSource) -> list[str]:
    texts = texts_of(column)
    if texts is None:
        raise DataError(
            f"{source.path}, column {source.id_column!r}: holds {excerpt(str(column.type))}, "
            "expected text or whole numbers that name the series; convert it"
        )
    return texts


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _times(column: Any, source: FileSource) -> tuple[Times, npt.NDArray[np.bool_]]:
    """The times, and which came with their offset from UTC."""
    where = time_column_of(source)
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0]) + 1
        raise DataError(f"{where.at(row)}: the cell is empty; correct or remove the row")
    if _is_text(column.type):
        texts = [str(cell).strip() for cell in column.to_pylist()]
        times = parse_times(texts, range(1, len(texts) + 1), where)
        return times, have_offsets(texts, where)
    found = as_times(column)
    if found is None:
        raise DataError(
            f"{source.path}, column {source.time_column!r}: holds {excerpt(str(column.type))}, "
            "expected timestamps; convert it, or set index = true under [source]"
        )
    times, dated = found
    return times, np.full(len(times), dated or source.timezone is None)
