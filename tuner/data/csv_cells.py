"""A CSV as text, its rows, and its used columns, cell by cell.

The cells are read with the standard library's reader, which knows the line every row starts on: a
row's number is the line of the file, the header being row 1.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.data.source_kinds import CsvSource
from tuner.errors import DataError

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
