"""The user's CSV: wide or long, read cell by cell so that an error names the row and the column.

The cells are converted by Python's own float, so that the values, and with them the data hash, do
not depend on the version of pandas. pandas reads the timestamps and knows the frequencies.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.data.assembled import Table, assembled, time_column_of
from tuner.data.csv_cells import Cells, decode, read_cells
from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.data.times import have_offsets, parse_times
from tuner.errors import DataError
from tuner.files.durable import open_plain

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
    values = (*task.target_columns, *task.past_covariates, *task.future_covariates)
    keys = [column for column in (source.time_column, source.id_column) if column is not None]
    cells = read_cells(decode(content, source), source, (*keys, *values))
    table = Table(
        values=np.stack([_numbers(cells, column, source) for column in values], axis=1),
        rows=cells.rows,
        ids=None if source.id_column is None else cells.columns[source.id_column],
    )
    if source.time_column is None:
        return assembled(table, source, task)
    texts = cells.columns[source.time_column]
    times = parse_times(texts, cells.rows, time_column_of(source))
    return assembled(
        table, source, task, times=times, dated=have_offsets(texts, time_column_of(source))
    )


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
