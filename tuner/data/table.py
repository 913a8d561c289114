"""The user's CSV: wide or long, read cell by cell so that an error names the row and the column.

The cells are converted by Python's own float, so that the values, and with them the data hash, do
not depend on the version of pandas. pandas reads the timestamps and knows the frequencies.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.data.assembled import Table, assembled, time_column_of
from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.data.times import have_offsets, parse_times
from tuner.errors import DataError
from tuner.files.durable import open_plain

# A CSV as text, its rows, and its used columns, cell by cell.


_OTHER_SEPARATORS = (";", "\t", "|", ",")


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
    for separator in _OTHER_SEPARATORS:
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
                f"looks {names[separator]}-separated with decimal commas: set separator = "
                f"{_toml(shown)} "
                "and decimal = ','"
            )
        return f"looks {names[separator]}-separated: set separator = {_toml(shown)}"
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
