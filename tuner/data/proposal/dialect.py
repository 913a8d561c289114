"""How a CSV that nobody described is written: its encoding, separator, decimal mark and header."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuner.data.table import is_missing
from tuner.errors import DataError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Keys of a CSV's source, and how many columns it has."""

    encoding: str
    separator: str
    decimal: Literal[".", ","]
    header: bool
    header_is_sure: bool
    columns: int


def dialect_of(content: bytes, path: Path, *, header: bool | None) -> Dialect:
    """How the file is written. `header` says whether its first row is one; None: found out.

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
    return Dialect(
        encoding=encoding,
        separator=separator,
        decimal=decimal,
        header=found if header is None else header,
        header_is_sure=sure or header is not None,
        columns=len(rows[0]),
    )


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
