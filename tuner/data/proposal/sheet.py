"""A file as columns of numbers, times or text, whatever kind of file it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.data.csv_cells import column_name, decode, read_cells
from tuner.data.proposal.dialect import Dialect, dialect_of, number_of
from tuner.data.source_kinds import CsvSource
from tuner.data.table import is_missing
from tuner.data.times import Times
from tuner.errors import DataError
from tuner.files.durable import open_plain
from tuner.files.plain import excerpt

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
    dialect = dialect_of(content, path, header=header)
    keys = _keys(dialect)
    source = CsvSource(kind="csv", path=path, **keys)
    cells = read_cells(decode(content, source), source)
    return Sheet(
        kind="csv",
        path=path,
        columns=tuple(_column(name, texts, dialect) for name, texts in cells.columns.items()),
        rows=len(cells.rows),
        written=keys,
        header_is_sure=dialect.header_is_sure,
        unnamed=dialect.columns - len(cells.columns),
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


def _keys(dialect: Dialect) -> dict[str, Any]:
    usual = {"separator": ",", "decimal": ".", "encoding": "utf-8", "header": True}
    return {key: getattr(dialect, key) for key in usual if getattr(dialect, key) != usual[key]}


def _column(name: str, texts: Sequence[str], dialect: Dialect) -> Column:
    numbers = np.full(len(texts), np.nan)
    missing = 0
    for position, cell in enumerate(texts):
        if is_missing(cell):
            missing += 1
            continue
        number = number_of(cell, dialect.decimal)
        if number is None:
            return Column(name=name, texts=texts, missing=sum(map(is_missing, texts)))
        numbers[position] = number
    if missing == len(texts):
        return Column(name=name, texts=texts, missing=missing)
    return Column(name=name, numbers=numbers, texts=texts, missing=missing)


def _parquet(content: bytes, path: Path) -> Sheet:
    from tuner.data.parquet import open_parquet, read_columns

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
    from tuner.data.parquet import as_numbers, as_times, is_number, texts_of

    if is_number(column.type):
        numbers = as_numbers(column)
        return Column(name=name, numbers=numbers, missing=int(np.isnan(numbers).sum()))
    times = as_times(column)
    if times is not None:
        return Column(name=name, times=times[0], has_offsets=times[1])
    return Column(name=name, texts=texts_of(column), missing=column.null_count)
