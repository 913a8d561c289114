"""The user's Parquet file: the used columns, within limits, as numbers, times and names.

pyarrow is an extra: most people's files are CSVs.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.data.assembled import Table, assembled, time_column_of
from tuner.data.series import Series
from tuner.data.source_kinds import FileSource
from tuner.data.task import Task
from tuner.data.times import Times, have_offsets, parse_times
from tuner.errors import DataError, first_line
from tuner.files.plain import excerpt

MOST_CELLS = 100_000_000
"""Numbers in the used columns: a small file may claim to hold more than any memory."""
MOST_COLUMNS = 20_000


def parse_parquet(content: bytes, source: FileSource, task: Task) -> tuple[Series, ...]:
    """The series in a Parquet file's content. Columns the task does not name are ignored; a row's
    number counts from 1.

    Raises:
        DataError: one line naming the file and, where there is one, the row and the column.
    """
    values = (*task.target_columns, *task.past_covariates, *task.future_covariates)
    keys = [column for column in (source.time_column, source.id_column) if column is not None]
    found = read_columns(content, str(source.path), [*keys, *values])
    rows = range(1, len(next(iter(found.values()))) + 1)
    numbers = [_numbers(found[column], column, source) for column in values]
    table = Table(
        values=np.stack(numbers, axis=1),
        rows=rows,
        ids=None if source.id_column is None else _names(found[source.id_column], source),
    )
    if source.time_column is None:
        return assembled(table, source, task)
    times, dated = _times(found[source.time_column], source)
    return assembled(table, source, task, times=times, dated=dated)


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
    try:
        opened = pq.ParquetFile(io.BytesIO(content))
        columns = opened.metadata.num_columns
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{file}: cannot be read as Parquet ({excerpt(first_line(error), at_most=120)}); write "
            "the file again"
        ) from None
    if columns > MOST_COLUMNS:
        raise DataError(
            f"{file}: has {columns:,} columns, at most {MOST_COLUMNS:,} are read; split the file"
        )
    return opened


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
    try:
        table = opened.read(columns=wanted)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DataError(
            f"{file}: cannot be read as Parquet ({excerpt(first_line(error), at_most=120)}); write "
            "the file again"
        ) from None
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


def _numbers(column: Any, name: str, source: FileSource) -> npt.NDArray[np.float64]:
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
        return times, have_offsets(texts, time_column_of(source))
    found = as_times(column)
    if found is None:
        raise DataError(
            f"{source.path}, column {source.time_column!r}: holds {excerpt(str(column.type))}, "
            "expected timestamps; convert it, or set index = true under [source]"
        )
    times, dated = found
    return times, np.full(len(times), dated or source.timezone is None)
