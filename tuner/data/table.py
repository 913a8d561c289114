"""The user's CSV: wide or long, read cell by cell so that an error names the row and the column.

The cells are read with the standard library's reader, which knows the line every row starts on (a
row's number is the line of the file, the header being row 1), and converted by Python's own float,
so that the values, and with them the data hash, do not depend on the version of pandas. pandas
reads the timestamps and knows the frequencies.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.data.series import Series
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.data.times import TimeColumn, check_times, parse_times
from tuner.errors import DataError

_OTHER_SEPARATORS = (";", "\t", "|", ",")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The used columns as text, blanks stripped: a list of cells per column; `rows` are lines of
    the file.
    """

    columns: dict[str, list[str]]
    rows: list[int]


def read_bytes(path: Path) -> bytes:
    """The file's content.

    Raises:
        DataError: missing, a folder, unreadable, or empty.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path}: no such file; correct 'path' under [source] in the task file"
        ) from None
    except IsADirectoryError:
        raise DataError(
            f"{path}: is a folder; 'path' under [source] must name a CSV file"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({reason})") from None
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise DataError(f"{path}: the file is empty; a header row and data rows are expected")
    return content


def parse_table(content: bytes, source: CsvSource, task: Task) -> tuple[Series, ...]:
    """The series in a CSV's content (see `CsvSource` for the two layouts). Columns the task does
    not name are ignored.

    Raises:
        DataError: one line naming the file and, where there is one, the row and the column.
    """
    values = (*task.target_columns, *task.past_covariates, *task.future_covariates)
    keys = (
        (source.time_column,)
        if source.id_column is None
        else (source.time_column, source.id_column)
    )
    cells = _read_cells(_decode(content, source), source, (*keys, *values))
    matrix = np.stack([_numbers(cells, column, source) for column in values], axis=1)
    where = TimeColumn(
        file=str(source.path),
        column=source.time_column,
        time_format=source.time_format,
        wide=source.id_column is None,
    )
    times = parse_times(cells.columns[source.time_column], cells.rows, where)
    found: list[Series] = []
    for name, members in _members(cells, source, task.name).items():
        check_times(times[members], [cells.rows[i] for i in members], task.frequency, where)
        found.append(Series(name=name, timestamps=times[members], values=matrix[members]))
    return tuple(found)


def _decode(content: bytes, source: CsvSource) -> str:
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


def _read_cells(text: str, source: CsvSource, wanted: Sequence[str]) -> _Cells:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=source.separator)
    row = 1
    try:
        header = [name.strip() for name in next(reader)]
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
    return _Cells(columns, rows)


def _ragged(source: CsvSource, row: int, found: int, expected: int) -> str:
    problem = f"{source.path}, row {row}: the row has {found} cells, the header has {expected}"
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


def _numbers(cells: _Cells, column: str, source: CsvSource) -> npt.NDArray[np.float64]:
    values = np.empty(len(cells.rows), dtype=np.float64)
    for position, cell in enumerate(cells.columns[column]):
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


def _members(cells: _Cells, source: CsvSource, task_name: str) -> dict[str, npt.NDArray[np.int64]]:
    """Positions of each series' rows, series in the order in which they first appear."""
    if source.id_column is None:
        return {task_name: np.arange(len(cells.rows))}
    members: dict[str, list[int]] = {}
    for position, name in enumerate(cells.columns[source.id_column]):
        if not name:
            row = cells.rows[position]
            raise DataError(
                f"{source.path}, row {row}, column {source.id_column!r}: the cell is empty; name "
                "the row's series"
            )
        members.setdefault(name, []).append(position)
    return {name: np.asarray(positions) for name, positions in members.items()}
