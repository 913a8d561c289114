"""A file as columns of numbers, times or text, whatever kind of file it is."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tuner.data.source_kinds import CsvSource
from tuner.data.table import column_name, decode, is_missing, read_cells
from tuner.data.times import Times
from tuner.errors import DataError
from tuner.files.durable import open_plain
from tuner.files.plain import excerpt

# How a CSV that nobody described is written: its encoding, separator, decimal mark and header.


SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS = 200
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_MAGIC = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a ZIP or Excel file",
    b"\xd0\xcf\x11\xe0": "an Excel file",
    b"\x1f\x8b": "compressed with gzip",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format": "a SQLite database",
}
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}(?:[-./]\d{1,4})?(?:[T ]\d{1,2}:\d{2}.*)?")
_STRANGE = re.compile("[\x00-\x08\x0e-\x1f\x80-\x9f]")


def dialect_of(content: bytes, path: Path, *, header: bool | None) -> tuple[CsvSource, bool, int]:
    """How the file is written, whether it is sure if it has a header, and how many columns it has.
    `header` says whether its first row is one; None: found out.

    Raises:
        DataError: it is no text, or has no rows.
    """
    encoding, text = _decoded(content, path)
    lines = _first_lines(text)
    if not lines:
        raise DataError(f"{path}: the file is empty; a header row and data rows are expected")
    separator = max(SEPARATORS, key=lambda each: _fit(lines, each))
    rows = _rows(lines, separator)
    if not rows:
        raise DataError(f"{path}: cannot be cut into columns; give a CSV or a Parquet file")
    decimal: Literal[".", ","] = "," if separator != "," and _has_decimal_commas(rows) else "."
    found, sure = _has_header(rows, decimal)
    source = CsvSource(
        kind="csv",
        path=path,
        encoding=encoding,
        separator=separator,
        decimal=decimal,
        header=found if header is None else header,
    )
    return source, sure or header is not None, len(rows[0])


def number_of(cell: str, decimal: str) -> float | None:
    """The finite number that a cell holds; None where it holds none."""
    try:
        value = float(cell.replace(",", ".") if decimal == "," else cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def _decoded(content: bytes, path: Path) -> tuple[str, str]:
    for magic, what in _MAGIC.items():
        if content.startswith(magic):
            raise DataError(
                f"{path}: is {what}, whatever its name; give a CSV or a Parquet file (a "
                "spreadsheet saves as CSV)"
            )
    encoding = _BOMS.get(content[:2], "utf-8")
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError:
        encoding, text = "cp1252", content.decode("cp1252", errors="replace")
        if "\N{REPLACEMENT CHARACTER}" in text:
            encoding, text = "latin-1", content.decode("latin-1")
    if _STRANGE.search(text):
        raise DataError(f"{path}: holds bytes that no text has; give a CSV or a Parquet file")
    return encoding, text


def _first_lines(text: str) -> list[str]:
    found: list[str] = []
    for line in io.StringIO(text):
        if line.strip():
            found.append(line)
        if len(found) == SAMPLE_ROWS:
            break
    return found


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return [
            [cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator) if row
        ]
    except csv.Error:
        return []


def _fit(lines: Sequence[str], separator: str) -> tuple[float, int]:
    """How well a separator cuts the lines: the share of cells below the first line that hold a
    number, a date or nothing; and how many columns there are.
    """
    rows = _rows(lines, separator)
    if not rows:
        return 0.0, 0
    width, alike = Counter(map(len, rows)).most_common(1)[0]
    cells = [cell for row in rows[1:] if len(row) == width for cell in row]
    good = sum(1 for cell in cells if _is_plain(cell, comma=separator != ","))
    share = good / len(cells) if cells else 0.5
    return (share + 1) * alike / len(rows) if width > 1 else share / 2, width


def _is_plain(cell: str, *, comma: bool) -> bool:
    if is_missing(cell) or number_of(cell, ".") is not None or _DATE.fullmatch(cell):
        return True
    return comma and bool(_COMMA_NUMBER.fullmatch(cell))


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell for row in rows[1:] or rows for cell in row]
    commas = sum(1 for cell in cells if _COMMA_NUMBER.fullmatch(cell))
    points = sum(1 for cell in cells if "." in cell and number_of(cell, ".") is not None)
    return commas > points


def _has_header(rows: Sequence[Sequence[str]], decimal: str) -> tuple[bool, bool]:
    """Whether the first row is a header, and whether that is sure.

    It is one where it has text above numbers or dates. A first row of whole numbers above others
    may be one: years, say.
    """
    first, below = rows[0], rows[1:]
    if not below:
        return True, True
    texts = 0
    for place, cell in enumerate(first):
        column = [row[place] for row in below if len(row) > place]
        plain = sum(1 for each in column if _is_plain(each, comma=decimal == ","))
        if cell and not _is_plain(cell, comma=decimal == ",") and 2 * plain >= len(column):
            texts += 1
    if texts:
        return True, True
    if any(cell and not _is_plain(cell, comma=decimal == ",") for cell in first):
        return True, False
    numbers = [number_of(cell, decimal) for cell in first]
    whole = all(each is not None and each == int(each) for each in numbers)
    fractions = any("." in cell or "," in cell for row in below for cell in row)
    return False, not (whole and fractions)


_WRITTEN = {"separator", "decimal", "encoding", "header"}
PARQUET = b"PAR1"
FRAME_INDEX = "__index_level_0__"
"""As pandas calls an index without a name that it writes to Parquet."""
MOST_BYTES = 1 << 31
"""Of a file that is to be looked at."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """One column: of `numbers`, (R,), NaN where a cell is empty; or of `times` that a Parquet file
    has as such; or else of `texts`. The texts of a CSV's numbers are kept: they may be dates.
    """

    name: str
    numbers: Floats | None = None
    times: Times | None = None
    has_offsets: bool = False
    texts: Sequence[str] | None = None
    missing: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether all its numbers are the same."""
        if self.numbers is None or self.missing == len(self.numbers):
            return False
        return bool(np.nanmin(self.numbers) == np.nanmax(self.numbers))

    @property
    def is_nameless(self) -> bool:
        """Whether it has the name of a first column without one, or of a data frame's index."""
        return self.name in (column_name("", 0), FRAME_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sheet:
    """A file's columns, and what is to be said of how it is written."""

    kind: str
    path: Path
    columns: tuple[Column, ...]
    rows: int
    written: Mapping[str, Any]
    """The keys of its source that are not as usual."""
    header_is_sure: bool = True
    unnamed: int = 0
    """Columns that are not here, as another has the same name."""

    def column(self, name: str, flag: str) -> Column:
        """The column of that name.

        Raises:
            DataError: there is none.
        """
        for each in self.columns:
            if each.name == name:
                return each
        listing = excerpt(", ".join(repr(each.name) for each in self.columns), at_most=300)
        raise DataError(f"{flag}: {self.path} has no column {name!r}; there are: {listing}")


def read_sheet(path: Path, *, header: bool | None) -> Sheet:
    """All columns of a CSV or Parquet file; `header` as in `dialect_of`.

    Raises:
        DataError: it is none, is empty, or cannot be read.
    """
    content = _content(path)
    if content.startswith(PARQUET) or path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(content, path)
    source, header_is_sure, columns = dialect_of(content, path, header=header)
    cells = read_cells(decode(content, source), source)
    return Sheet(
        kind="csv",
        path=path,
        columns=tuple(
            _column(name, texts, source.decimal) for name, texts in cells.columns.items()
        ),
        rows=len(cells.rows),
        written=source.model_dump(include=_WRITTEN, exclude_defaults=True),
        header_is_sure=header_is_sure,
        unnamed=columns - len(cells.columns),
    )


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name a CSV or a Parquet file in it")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(
                f"{path}: is larger than {MOST_BYTES >> 30} GiB; write its task file by hand, see "
                "docs/own-data.md"
            )
        with open_plain(path) as file:
            content = file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{path}: cannot be read ({reason}); name a CSV or a Parquet file"
        ) from None
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise DataError(f"{path}: the file is empty; a header row and data rows are expected")
    return content


def _column(name: str, texts: Sequence[str], decimal: str) -> Column:
    numbers = np.full(len(texts), np.nan)
    missing = 0
    for position, cell in enumerate(texts):
        if is_missing(cell):
            missing += 1
            continue
        number = number_of(cell, decimal)
        if number is None:
            return Column(name=name, texts=texts, missing=sum(map(is_missing, texts)))
        numbers[position] = number
    if missing == len(texts):
        return Column(name=name, texts=texts, missing=missing)
    return Column(name=name, numbers=numbers, texts=texts, missing=missing)


def _parquet(content: bytes, path: Path) -> Sheet:
    from tuner.data.table import open_parquet, read_columns

    names = open_parquet(content, str(path)).schema_arrow.names
    once = [name for name in dict.fromkeys(names) if names.count(name) == 1]
    found = read_columns(content, str(path), once)
    columns = tuple(_parquet_column(name, column) for name, column in found.items())
    rows = len(next(iter(found.values())))
    return Sheet(
        kind="parquet",
        path=path,
        columns=columns,
        rows=rows,
        written={},
        unnamed=len(names) - len(once),
    )


def _parquet_column(name: str, column: Any) -> Column:
    from tuner.data.table import as_numbers, as_times, is_number, texts_of

    if is_number(column.type):
        numbers = as_numbers(column)
        return Column(name=name, numbers=numbers, missing=int(np.isnan(numbers).sum()))
    times = as_times(column)
    if times is not None:
        return Column(name=name, times=times[0], has_offsets=times[1])
    return Column(name=name, texts=texts_of(column), missing=column.null_count)
