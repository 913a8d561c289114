"""A file as columns of numbers, times or text, whatever kind of file it is; and what a person said
of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tuner.data.calendars import fit
from tuner.data.dialect import (
    MISSING,
    YES_AND_NO,
    Floats,
    FoundDialect,
    as_numbers,
    dialect_of,
    numbers_of,
    plain,
)
from tuner.data.open_file import (
    STANDARD_INPUT,
    OpenFile,
    column_name,
    is_parquet,
    opened,
    read_bytes,
)
from tuner.data.source_kinds import CsvSource, FileSource, ParquetSource, is_wild
from tuner.data.sources import files_of
from tuner.data.times import forms_of, read_form
from tuner.errors import unknown_name

# What a person said of a file, and what is guessed where nobody said it.


NONE = "none"
"""The answer that there is no such column, or no time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers; None where there is none yet."""

    header: str | None = None
    """"yes" or "no"."""
    decimal: str | None = None
    time_column: str | None = None
    time_format: str | None = None
    id_column: str | None = None
    timezone: str | None = None
    frequency: str | None = None
    gaps: str | None = None
    bounds: str | None = None
    """"yes" or "no"."""
    targets: tuple[str, ...] | None = None
    horizon: int | None = None
    input_size: int | None = None


@dataclass(frozen=True, slots=True)
class Guess:
    """What was taken where the file leaves it open."""

    key: str
    """The field of `Told` that would settle it."""
    value: str
    why: str
    """What speaks for it, or what it means: for the comment in the file."""
    choices: tuple[str, ...] = ()
    """All answers; empty where any text is one."""
    readings: tuple[str, ...] = ()
    """What the file would hold, where two answers fit equally well: then nobody guesses."""


# A file's columns.


NAMELESS = (column_name("", 0), "__index_level_0__")
"""What a first column without a name is called, and in Parquet a data frame's index."""
SAMPLE, LEAST_ACROSS = 200, 8


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One column: `numbers`, (R,), NaN where a cell is empty; None where it is another. `cells` are
    as pandas has them. `stray` is the place of the first cell that is no number, where most are.
    """

    name: str
    cells: pd.Series[Any]
    numbers: Floats | None = None
    missing: int = 0
    stray: int | None = None
    says: str = ""
    """How its numbers are written, where that is not plain."""

    @property
    def is_yes_or_no(self) -> bool:
        """Whether it says yes or no, in words."""
        if self.cells.dtype.kind in "iuf" or self.numbers is None:
            return False
        some = self.cells.dropna().unique()[:9]
        return {str(each).lower() for each in some} <= set(YES_AND_NO)

    @property
    def is_whole(self) -> bool:
        """Whether its numbers have no fractions, and none is missing."""
        numbers = None if self.missing else self.numbers
        return numbers is not None and bool((numbers == np.rint(numbers)).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sheet:
    """A file's columns, and in which dialect it was found to be written."""

    path: Path
    source: CsvSource | ParquetSource
    """Its kind and dialect."""
    file: OpenFile
    columns: tuple[Column, ...]
    rows: int
    found: FoundDialect | None = None
    files: int = 1
    """Of a pattern this is the smallest one."""
    unnamed: int = 0
    """Columns that are not here, as another has the same name."""

    def column(self, name: str, flag: str) -> Column:
        """The column of that name.

        Raises:
            UsageError: there is none.
        """
        for each in self.columns:
            if each.name == name:
                return each
        raise unknown_name(f"column of {flag}", name, [each.name for each in self.columns])

    def at(self, position: Any, column: Column) -> str:
        """A cell, for messages."""
        return f"{self.path}, row {self.file.rows[position]}, column {column.name!r}"

    def texts(self, column: Column) -> pd.Series[str]:
        """A column as it is written: of numbers, the noughts that they begin with are lost."""
        if column.numbers is None:
            return plain(column.cells)
        ((_, cells),) = self.file.read([column.name], [column.name])
        return plain(cells)


def read_sheet(path: Path, told: Told) -> Sheet:
    """All columns of a CSV or Parquet file, of standard input, or of one of the files of a pattern.

    Raises:
        DataError: it is none, is empty, or cannot be read.
    """
    if is_wild(str(path)) and not path.exists():
        files = files_of(FileSource(path=path).placed_in(Path.cwd()), None).values()
        smallest = min(files, key=lambda each: each.stat().st_size)
        return replace(read_sheet(smallest, told), files=len(files))
    content = read_bytes(path, remedy="name a CSV or a Parquet file")
    if path == STANDARD_INPUT:
        path = Path("standard input")
    if is_parquet(content, path):
        return _sheet(content, ParquetSource(kind="parquet", path=path))
    header = None if told.header is None else told.header == "yes"
    found = dialect_of(content, path, header=header, decimal=told.decimal)
    sheet = _turned(content, _sheet(content, found.source), told)
    if sheet.source != found.source:
        return sheet
    return replace(sheet, found=found)


def _turned(content: bytes, sheet: Sheet, told: Told) -> Sheet:
    """With a row for each series and time, where the header has a time above most columns."""
    names = [each.name for each in sheet.columns if not each.name.isdigit()]
    best = 0.0, sheet
    forms = [told.time_format] if told.time_format else forms_of(names[-SAMPLE:])
    for form in forms if len(names) >= LEAST_ACROSS else ():
        times = read_form(pd.Series(names, dtype=str), form).times.dropna()
        found = fit(times.to_numpy().astype("datetime64[us]"))
        if found is not None and 2 * len(times) > len(names) and found.score > best[0]:
            change = {"dates_across": True, "time_format": form}
            best = found.score, _sheet(content, sheet.source.model_copy(update=change))
    return best[1]


def _sheet(content: bytes, source: CsvSource | ParquetSource) -> Sheet:
    file = opened(content, source)
    once = [name for name in dict.fromkeys(file.names) if list(file.names).count(name) == 1]
    cells = dict(file.read(once, ()))
    return Sheet(
        path=source.path,
        source=source,
        file=file.keeping(cells),
        columns=tuple(_column(*each, source) for each in cells.items()),
        rows=len(file.rows),
        unnamed=len(file.names) - len(once),
    )


def _column(name: str, cells: pd.Series[Any], source: CsvSource | ParquetSource) -> Column:
    missing, kind = int(cells.isna().sum()), cells.dtype.kind
    if kind in "biuf" and missing < len(cells):
        numbers, stray = as_numbers(cells)
        return Column(name, cells, numbers, missing, stray)
    if kind == "M" or isinstance(source, ParquetSource):
        return Column(name, cells, None, missing)
    texts = plain(cells)
    known = texts[~texts.isin(MISSING)]
    missing = len(texts) - len(known)
    sample = known.iloc[:: max(1, len(known) // SAMPLE)].tolist()
    good = sum(numbers_of([each], *source.marks)[1] is None for each in sample)
    together = len(sample) > 1 and numbers_of(sample, *source.marks)[1] is None  # as yes and no are
    if 2 * good <= len(sample) and not together:
        return Column(name, cells, None, missing)
    numbers, stray = as_numbers(cells, *source.marks)
    if stray is not None:
        return Column(name, cells, None, missing, stray)
    found = Column(name, cells, numbers, missing)
    return found if found.is_yes_or_no else replace(found, says=_says(cells, numbers))


def _says(cells: pd.Series[Any], numbers: Floats) -> str:
    for cell, number in zip(cells.iloc[:SAMPLE], numbers, strict=False):
        if not np.isnan(number) and str(cell).strip("-+0123456789.,eE ") not in ("", "'"):
            return f"{str(cell).strip()!r} is read as {number:g}"
    return ""
