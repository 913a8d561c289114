"""How a CSV is written: its encoding, separator, marks in numbers, and where its header is; found
out once. And its cells as numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.source_kinds import CsvSource
from tuner.data.times import clock_form, forms_of
from tuner.errors import DataError

Floats = npt.NDArray[np.float64]

# Cells as numbers, whatever marks they are written with.


_MISSING = (
    "", "nan", "na", "n/a", "#n/a", "n.a.", "<na>", "null", "none", "nat", "-", "--", "?", "n/e",
)  # fmt: skip
MISSING = frozenset(
    written for each in _MISSING for written in (each, each.upper(), each.capitalize(), "NaN")
)
"""What stands in a cell that has no value; refused unless gaps are filled."""
YES_AND_NO = {
    "true": 1, "false": 0, "yes": 1, "no": 0, "y": 1, "n": 0, "t": 1, "f": 0, "on": 1, "off": 0,
    "ja": 1, "nein": 0, "oui": 1, "non": 0, "wahr": 1, "falsch": 0,
}  # fmt: skip
_TIDY = str.maketrans(
    {"\u2212": "-", "\u00a0": " ", "\u202f": " ", "\u2019": "'", "\n": "?", "€": "$", "£": "$"}
)
_OLD_PANDAS = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
EXACT: Mapping[str, Any] = {"float_precision": "round_trip"} if _OLD_PANDAS else {}
"""So that values, and with them the data hash, are those that Python reads, in any pandas."""


def as_numbers(
    cells: pd.Series[Any], decimal: str = ".", thousands: str | None = None
) -> tuple[Floats, int | None]:
    """Cells as float64, (R,), NaN where one is empty, yes and no as 1 and 0; and the position of
    the first one that is no finite number, None where all are.
    """
    if cells.dtype.kind in "biuf":
        found = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        texts = plain(cells).tolist()
        found, bad = numbers_of(texts, decimal, thousands)
        if bad is not None:
            return found, bad
    infinite = np.flatnonzero(np.isinf(found))
    return found, int(infinite[0]) if infinite.size else None


def plain(cells: pd.Series[Any]) -> pd.Series[str]:
    """Cells as texts without blanks around them; empty ones are empty texts."""
    if cells.dtype.kind not in "OU" or cells.hasnans:
        cells = cells.astype(object).where(cells.notna(), "")
    return cells.astype(str).str.strip()


def numbers_of(
    texts: Sequence[str], decimal: str = ".", thousands: str | None = None
) -> tuple[Floats, int | None]:
    """The same of texts without blanks around them; infinity is one."""
    kinds = {each.lower() for each in set(texts) - MISSING} if len(set(texts[:99])) < 9 else set()  # noqa: PLR2004
    if kinds and kinds <= set(YES_AND_NO):
        return np.array([YES_AND_NO.get(each.lower(), np.nan) for each in texts]), None
    tidy = (
        each if each.isascii() else each.translate(_TIDY).encode("ascii", "replace").decode()
        for each in texts
    )  # fmt: skip
    whole = "\n".join(tidy)
    whole = re.sub(r"(?m)^\((.*)\)$", r"-\1", whole)  # as accountants write what is below zero
    whole = re.sub(r"(?m) ?[%$]$|^([+-]?)\$ ?", r"\1", whole).replace("_", "?")
    if thousands is not None:
        mark = re.escape(thousands)
        grouped = re.compile(rf"(?m)^([+-]?\d{{1,3}}(?:{mark}\d{{3}})+)(?!\d)")
        whole = grouped.sub(lambda found: found[1].replace(thousands, ""), whole)
    if decimal == ",":
        whole = whole.replace(".", "?").replace(",", ".")
    found = np.full(len(texts), np.nan)
    for position, cell in enumerate(whole.split("\n")):
        try:
            found[position] = float(cell)
        except ValueError:
            if texts[position] not in MISSING:
                return found, position
    return found, None


# The dialect of a file that nobody described.


SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS, SAMPLES, SAMPLE_BYTES = 200, 8, 4096
MOST_ABOVE = 60
"""Lines above a header."""
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
LOOKED_AT = 1 << 20
_STRANGE = re.compile("[\x00-\x08\x0e-\x1f\x80-\x9f]")


class FoundDialect(NamedTuple):
    """How a file is written, whether it is sure if it has a header, and the marks (decimal,
    thousands) that its numbers could have as well.
    """

    source: CsvSource
    header_is_sure: bool
    other_marks: Marks | None = None


def dialect_of(
    content: bytes, path: Path, *, header: bool | None = None, decimal: str | None = None
) -> FoundDialect:
    """How a file is written. `header` says whether its first row is one, `decimal` which its mark
    is; None: found out.

    Raises:
        DataError: it is no text, or has no rows.
    """
    encoding, text = _decoded(content, path)
    lines = [line for line in io.StringIO(text[:LOOKED_AT]) if line.strip()][:SAMPLE_ROWS]
    separator = max(SEPARATORS, key=lambda each: _fit(lines, each))
    rows = _rows(lines, separator)
    if not rows:
        raise DataError(f"{path}: cannot be cut into columns; give a CSV or a Parquet file")
    width = mode(map(len, rows))
    above = next((at for at, row in enumerate(rows) if len(row) == width), 0)
    nameless = above and len(rows[above - 1]) == width - 1 and not _has_header(rows[above:])[0]
    if above > MOST_ABOVE or nameless:
        above = 0  # of a header that lacks a name, the reader says where
    rows = [row for at, row in enumerate(rows[above:]) if len(row) == width or at == 0]
    blank = len(text[: text.find(lines[above])].splitlines()) if above else 0
    found, sure = _has_header(rows)
    found = found if header is None else header
    units = found and _are_units(rows)
    rest = rows[1 + units :] if found and len(rows) > 1 else rows
    middle = [each for each in _from_the_middle(text, separator) if len(each) == width]
    marks, others = _marks(rest + middle, separator)
    if decimal is not None and others and others[0] == decimal:
        marks, others = others, None
    if marks[0] == separator:
        raise DataError(f"{path}: has decimal commas between commas; save it with semicolons")
    keys: dict[str, Any] = {"decimal": marks[0], "thousands": marks[1], "skip_rows": blank}
    keys |= {"encoding": encoding, "separator": separator, "header": found, "units_row": units}
    source = CsvSource(kind="csv", path=path, **keys)
    others = None if decimal is not None else others
    return FoundDialect(source, sure or header is not None, others)


def _decoded(content: bytes, path: Path) -> tuple[str, str]:
    encoding = _BOMS.get(content[:2], "utf-8")
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError:
        encoding, text = "cp1252", content.decode("cp1252", errors="replace")
        if "\N{REPLACEMENT CHARACTER}" in text:
            encoding, text = "latin-1", content.decode("latin-1")
    if _STRANGE.search(text[:LOOKED_AT]):
        raise DataError(f"{path}: is no text; give a CSV or Parquet file (spreadsheets save CSV)")
    return encoding, text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return [
            [cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator) if row
        ]
    except csv.Error:
        return []


def _from_the_middle(text: str, separator: str) -> list[list[str]]:
    """Some rows from all over the file: a mark may not be there in the first ones."""
    found: list[list[str]] = []
    for part in range(1, SAMPLES + 1):
        at = len(text) * part // (SAMPLES + 1)
        found += _rows(text[at : at + SAMPLE_BYTES].splitlines()[1:-1], separator)
    return found


def _fit(lines: Sequence[str], separator: str) -> tuple[float, int]:
    """How well a separator cuts the lines: the share of cells below the first line that hold a
    number, a date or nothing; and how many columns there are.
    """
    rows = _rows(lines, separator)
    if not rows:
        return 0.0, 0
    width = mode(map(len, rows))
    alike = sum(1 for row in rows if len(row) == width)
    cells = [cell for row in rows[1:] if len(row) == width for cell in row]
    share = _plain(cells) / len(cells) if cells else 0.5
    return (share + 1) * alike / len(rows) if width > 1 else share / 2, width


def _is_plain(cell: str) -> bool:
    """Whether a cell is one of data: a number, a time, or empty."""
    known = cell in MISSING or _is_number(_shape(cell))
    return known or bool(forms_of([cell]) or clock_form(cell))


@lru_cache
def _is_number(shape: str) -> bool:
    return any(each.fullmatch(shape) for each in _READINGS.values())


def _plain(cells: Sequence[str]) -> int:
    return sum(map(_is_plain, cells))


def _has_header(rows: Sequence[Sequence[str]]) -> tuple[bool, bool]:
    """Whether the first row is a header, and whether that is sure.

    It is one where it has text above numbers or dates. A first row of whole numbers above others
    may be one: years, say.
    """
    first, below = rows[0], rows[1:]
    texts = [at for at, cell in enumerate(first) if cell and not _is_plain(cell)]
    columns = list(zip(*below, strict=False))
    over_data = [at for at in texts if at < len(columns) and 2 * _plain(columns[at]) >= len(below)]
    if not below or texts:
        return True, not below or bool(over_data)
    whole = all(re.fullmatch(r"[+-]?\d+", cell) for cell in first)
    fractions = any("." in cell or "," in cell for row in below for cell in row)
    return False, not (whole and fractions)


def _are_units(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the row below the header has units: text above columns of data, and no data."""
    if len(rows) < 4:  # noqa: PLR2004 - header, units, and rows to tell them by
        return False
    for cell, column in zip(rows[1], zip(*rows[2:], strict=False), strict=False):
        known = [each for each in column if each not in MISSING]
        if cell and (_is_plain(cell) or not known or 10 * _plain(known) < 9 * len(known)):
            return False
    return any(rows[1])


# The marks in numbers: those under which most cells can be read. Of 1,234 alone, both readings are
# right; 1,23 or 0,123 has a decimal comma, and 1,234.5 or 1,234,567 marks between thousands.


Marks = tuple[str, str | None]
SURE = 50
"""Cells with three digits after the only mark, beside whole numbers, that are no fractions."""


def _numbers_with(decimal: str, thousands: str | None) -> re.Pattern[str]:
    grouped = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|" if thousands else ""
    return re.compile(rf"(?=.?\d)(?:{grouped}\d*)(?:{re.escape(decimal)}\d*)?(?:[eE][+-]?\d+)?")


_READINGS: dict[Marks, re.Pattern[str]] = {
    marks: _numbers_with(*marks)
    for marks in (
        (".", None), (",", None), (".", ","), (",", "."), (".", "'"), (",", "'"), (".", " "),
        (",", " "),
    )
}  # fmt: skip
_EITHER = re.compile(r"[1-9]\d{0,2}([.,])\d{3}")


_SHAPE = {**_TIDY, **dict.fromkeys(map(ord, "23456789"), "1")}


def _shape(cell: str) -> str:
    """A number as far as its marks go: they stand in few shapes."""
    return cell.translate(_SHAPE).strip("()+-$% ")


def marks_of(cells: Sequence[str]) -> Marks | None:
    """The decimal and the thousands mark of cells; None where they hold no numbers."""
    shapes = Counter(map(_shape, cells))
    counts = {
        marks: sum(times for shape, times in shapes.items() if pattern.fullmatch(shape))
        for marks, pattern in _READINGS.items()
    }
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else None


def _marks(rows: Sequence[Sequence[str]], separator: str) -> tuple[Marks, Marks | None]:
    """The marks of rows, and others that they could have as well."""
    marked = [cell for row in rows for cell in row if re.search(r"[.,' \u00a0\u202f\u2019]", cell)]
    best = marks_of(marked) or (".", None)
    numbers = [shape for shape in map(_shape, marked) if _READINGS[best].fullmatch(shape)]
    either = Counter(found[1] for shape in numbers if (found := _EITHER.fullmatch(shape)))
    if not numbers or either.total() < len(numbers):
        return best, None
    ((mark, count),) = either.most_common(1)
    as_decimal: Marks = (mark, None)
    as_thousands: Marks = ("," if mark == "." else ".", mark)
    small = False  # fractions of three digits, some of which are written as none, are rare
    for column in zip(*rows, strict=False):
        if any(_EITHER.fullmatch(_shape(cell)) for cell in column):
            small = small or any(re.fullmatch(r"[+-]?\d{1,3}", cell) for cell in column)
    if mark == "." and (separator == "," or not small):
        return as_decimal, None
    if small and (mark == "," or count >= SURE):
        return as_thousands, None
    if mark == separator:
        return as_thousands, as_decimal
    return as_decimal, as_thousands if mark == "." else None
