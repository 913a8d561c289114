"""The user's file, CSV or Parquet, and a DataFrame: columns by name, read within limits so that an
error names the row and the column.

pandas reads CSVs in the dialect of their source, pyarrow reads Parquet. pyarrow is an extra: most
people's files are CSVs.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.dialect import EXACT, MISSING, dialect_of, plain
from tuner.data.source_kinds import (
    DEFAULT_TIME_COLUMN,
    CsvSource,
    FileSource,
    Hdf5Source,
    TypedSource,
)
from tuner.data.times import read_form
from tuner.errors import DataError, first_line
from tuner.files.durable import open_plain
from tuner.files.plain import excerpt
from tuner.files.toml_file import toml_value

Positions = npt.NDArray[np.int64]
Read = Iterator[tuple[str, "pd.Series[Any]"]]
Blocks = Iterator[npt.NDArray[np.float64]]

ROWS_AT_ONCE = 1 << 15
"""Of a file that is read in pieces."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenFile:
    """A file whose columns can be read: their names, in order, maybe one of them twice; the line of
    each row, (R,); and what gives columns as pandas has them, those of `texts` as they are written.
    """

    head: str
    """The file, and where in it the names stand, for messages."""
    names: Sequence[str]
    rows: Positions
    read: Callable[[Sequence[str], Sequence[str]], Read]
    content: bytes = b""
    """What the file holds, unpacked."""
    blocks: Callable[[Sequence[str]], Blocks] | None = None
    """Gives columns of numbers some rows at a time, each (r, columns), NaN where a cell is empty;
    None where the whole file is in memory anyway."""

    def cell(self, position: int, name: str) -> str:
        """What is written there."""
        ((_, cells),) = self.read([name], [name])
        return str(plain(cells.iloc[[position]]).iloc[0])

    def columns(self, wanted: Sequence[str], texts: Sequence[str] = ()) -> Read:
        """Raises:
        DataError: a column that is not there, or there twice.
        """
        for name in wanted:
            if name not in self.names:
                listing = excerpt(", ".join(map(repr, self.names)), at_most=300)
                raise DataError(f"{self.head}: missing column {name!r}; there are: {listing}")
            if (times := list(self.names).count(name)) > 1:
                raise DataError(f"{self.head}: column {name!r} is there {times} times; rename one")
        return self.read(wanted, texts)

    def keeping(self, kept: dict[str, pd.Series[Any]]) -> OpenFile:
        """The same, with columns that were read before: each is given once, then forgotten. As
        texts only those that are, and have no empty cell.
        """

        def read(wanted: Sequence[str], texts: Sequence[str]) -> Read:
            for name in texts:
                if name in kept and (kept[name].dtype.kind in "biuf" or kept[name].hasnans):
                    del kept[name]
            unread = [name for name in wanted if name not in kept]
            fresh = dict(self.read(unread, texts)) if unread else {}
            for name in wanted:
                yield name, fresh.pop(name) if name in fresh else kept.pop(name)

        return replace(self, read=read)


def open_frame(frame: pd.DataFrame, head: str, rows: Positions | None = None) -> OpenFile:
    """A DataFrame, whose rows count from 1."""

    def read(wanted: Sequence[str], _: Sequence[str]) -> Read:
        yield from ((name, frame[name].reset_index(drop=True)) for name in wanted)

    rows = np.arange(1, len(frame) + 1) if rows is None else rows
    return OpenFile(head=head, names=list(frame.columns), rows=rows, read=read)


def joined(files: Sequence[OpenFile], head: str) -> OpenFile:
    """Parts of one file as that file: its rows are counted through.

    Raises:
        DataError: parts with other columns than the first one's.
    """
    first, counted, rows = files[0], 0, []
    for each in files:
        if sorted(each.names) != sorted(first.names):
            listing = excerpt(", ".join(map(repr, each.names)), at_most=300)
            raise DataError(
                f"{each.head}: has the columns {listing}, others than {first.head}; files that are "
                "joined have the same ones: correct it, or leave it out of the pattern"
            )
        rows.append(each.rows + counted)
        counted += int(each.rows[-1])

    def read(wanted: Sequence[str], texts: Sequence[str]) -> Read:
        for name in wanted:  # one after the other: of all files, no more is held at once
            parts = [cells for each in files for _, cells in each.read([name], texts)]
            whole = pd.concat(parts, ignore_index=True)
            whole.attrs.update(parts[0].attrs)
            yield name, whole

    def blocks(wanted: Sequence[str]) -> Blocks:
        for each in files:
            assert each.blocks is not None
            yield from each.blocks(wanted)

    served = blocks if all(each.blocks is not None for each in files) else None
    together = np.concatenate(rows)
    return OpenFile(head=head, names=first.names, rows=together, read=read, blocks=served)


STANDARD_INPUT = Path("-")
TO_CORRECT = "correct 'path' under [source] in the task file"


def read_bytes(path: Path, *, beside: str = "", remedy: str = TO_CORRECT) -> bytes:
    """What a file holds, or standard input for `-`, unpacked where it is a gzip; `beside` says
    where else it was looked for.

    Raises:
        DataError: missing, a folder, unreadable, or empty.
    """
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read()
        else:
            with open_plain(path) as file:
                content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path}: no such file{beside}; {remedy}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; name a CSV or a Parquet file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise DataError(f"{path}: cannot be read ({reason})") from None
    content = _unpacked(content, path)
    if not re.search(rb"[^\xef\xbb\xbf\s]", content):
        raise DataError(f"{path}: the file is empty; a header row and data rows are expected")
    return content


MOST_BYTES = 1 << 31
"""Of a file that is unpacked."""


def _unpacked(content: bytes, path: Path) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked as gzip ({error}); write it again") from None
    if len(found) > MOST_BYTES:
        raise DataError(f"{path}: holds more than {MOST_BYTES >> 30} GiB; split the file")
    return found


def opened(content: bytes, source: FileSource) -> OpenFile:
    """A file's content, by its kind and dialect.

    Raises:
        DataError: it is none of its kind.
    """
    if isinstance(source, TypedSource):
        file = open_typed(content, source)
    else:
        assert isinstance(source, CsvSource), "there is no other kind"
        file = open_csv(content, source)
        if source.dates_across:
            file = turned(file, source.time_format)
    return replace(file, content=content)


VALUE = "value"
"""What the cells are called of a file that has a column for each time."""


def turned(file: OpenFile, form: str | None) -> OpenFile:
    """A file with a column for each time, as one with a row for each row and time: its columns of
    text, the time, and the value.

    Raises:
        DataError: no column's name is a time in this form.
    """
    times = read_form(pd.Series(file.names, dtype=str), form).times
    days = [name for name, known in zip(file.names, times.notna(), strict=True) if known]
    if not days:
        raise DataError(f"{file.head}: dates_across = true, and no column's name is a time")
    wide = pd.DataFrame(dict(file.read(file.names, ())))
    beside = [name for name in wide if name not in days and wide[name].dtype.kind not in "biuf"]
    long = wide.melt(beside, days, var_name=DEFAULT_TIME_COLUMN, value_name=VALUE)
    long[DEFAULT_TIME_COLUMN] = np.repeat(times.dropna().to_numpy(), len(wide))
    return open_frame(long, file.head, np.tile(file.rows, len(days)))


# A CSV: its bytes as UTF-8, its header, its rows counted, its columns as pandas reads them.


def column_name(cell: str, position: int) -> str:
    """What the column number `position` (from 0) is called: as its cell in the header says, or by
    its number where that is empty.
    """
    return cell.strip() or f"column_{position + 1}"


def _decoded(content: bytes, source: CsvSource) -> bytes:
    """The file as UTF-8, its lines ended as Unix does."""
    try:
        content = content.decode(source.encoding).removeprefix("\ufeff").encode()
    except UnicodeError as error:
        row = content[: getattr(error, "start", 0)].count(b"\n") + 1
        guess = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
        raise DataError(
            f"{source.path}, row {row}: is not {source.encoding} text; set encoding (perhaps "
            f"{guess!r}) under [source] in the task file or save the file as UTF-8"
        ) from None
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return content


def _reader(body: bytes, separator: str) -> Any:
    text = io.TextIOWrapper(io.BytesIO(body), encoding="utf-8", errors="replace", newline="")
    return csv.reader(text, delimiter=separator)


def _without_lines(body: bytes, lines: int) -> bytes:
    start = 0
    for _ in range(lines):
        start = body.find(b"\n", start) + 1 or len(body)
    return body[start:]


AS_IT_IS: dict[str, Any] = {"header": None, **EXACT} | dict.fromkeys(
    ("keep_default_na", "index_col", "skip_blank_lines", "low_memory"), False
)
"""Of pandas: no row, no column and no blank line means anything."""


def open_csv(content: bytes, source: CsvSource) -> OpenFile:
    """A CSV, each of whose rows has as many cells as the first.

    Raises:
        DataError: a row that is not like the others, or no rows.
    """
    body = _without_lines(_decoded(content, source), source.skip_rows)
    try:
        reader = _reader(body, source.separator)
        first: list[str] = next(reader, [])
        if source.units_row:
            next(reader, [])
        lines = reader.line_num if source.header else 0
        body = _without_lines(body, lines)
        rows, body = _checked(body, source, len(first), source.skip_rows + lines)
    except csv.Error as error:
        raise DataError(f"{source.path}: cannot be read as CSV ({error})") from None
    if not len(rows):
        raise DataError(f"{source.path}: the file has a header but no rows")
    names = [column_name(each * source.header, at) for at, each in enumerate(first)]

    def read(wanted: Sequence[str], texts: Sequence[str]) -> Read:
        places = {name: names.index(name) for name in wanted}
        kinds: dict[Any, Any] = {places[name]: str for name in texts if name in places}
        empty: dict[Any, Any] = {at: [*MISSING] for at in places.values() if at not in kinds}
        try:
            written: Any = {"sep": source.separator, "decimal": source.decimal, "dtype": kinds}
            written |= {"usecols": sorted(places.values()), "na_values": empty} | AS_IT_IS
            frame = pd.read_csv(io.BytesIO(body), **written)
        except (ValueError, OverflowError) as error:  # of pandas, too
            raise DataError(f"{source.path}: cannot be read as CSV ({first_line(error)})") from None
        for name, at in places.items():
            yield name, frame[at].rename(name)

    head = f"{source.path}, row {source.skip_rows + 1}"
    return OpenFile(head=head, names=names, rows=rows, read=read)


def _checked(body: bytes, source: CsvSource, width: int, skipped: int) -> tuple[Positions, bytes]:
    """The line of each row, and the rows without blank lines at the end: these are harmless,
    before data they are not.
    """
    mark, whole = source.separator.encode(), body.rstrip(b"\n")
    while whole and not (last := whole[whole.rfind(b"\n") + 1 :]).strip(mark + b' "\t'):
        whole = whole[: len(whole) - len(last)].rstrip(b"\n")
    if not whole:
        return np.empty(0, dtype=np.int64), whole
    if b"\0" in whole:
        row = whole[: whole.find(b"\0")].count(b"\n") + skipped + 1
        raise DataError(f"{source.path}, row {row}: holds a byte that no text has; correct the row")
    whole += b"\n"
    bare = re.sub(rb'"[^"\n]*"', b"", whole) if b'"' in whole else whole
    shape = bare.translate(None, bytes(set(range(256)) - {*mark, *b"\n"}))
    firsts = np.arange(shape.count(b"\n"))
    if b'"' in bare or shape != (mark * (width - 1) + b"\n") * len(firsts):
        reader = _reader(whole, source.separator)  # exactly, with the odd quote within a cell
        found = [(record, reader.line_num) for record in reader]
        cells = np.array([len(record) for record, _ in found])
        firsts = np.array([0, *(line for _, line in found)])[:-1]
        for position in np.flatnonzero(cells != width):
            where = f"{source.path}, row {int(firsts[position]) + skipped + 1}"
            if not any(cell.strip() for cell in found[position][0]):
                raise DataError(f"{where}: the row is blank; remove it or fill it in")
            refuse_other_dialect(whole, source)
            first = "header" if source.header else "first row"
            remedy = "correct the row"
            if (count := cells[position]) > width and source.separator == ",":
                remedy = "numbers with decimal commas need another separator: save it with ';'"
            said = f"the row has {count} cells, the {first} has {width}"
            raise DataError(f"{where}: {said}; {remedy}")
    return firsts + skipped + 1, whole


def refuse_other_dialect(content: bytes, source: CsvSource) -> None:
    """Raises DataError where a file is separated by another character than its source says."""
    found = dialect_of(content, source.path).source
    if found.separator != source.separator:
        told = f"separator = {toml_value(found.separator)}"
        if found.decimal != source.decimal:
            told += f" and decimal = {toml_value(found.decimal)}"
        raise DataError(f"{source.path}: is written otherwise: set {told} under [source]")


# A file whose columns have types, read within limits, a column at a time, or some rows.


def open_typed(content: bytes | None, source: TypedSource) -> OpenFile:
    """A file by its kind. Without its `content` it is read from its path, as much as is asked for.

    Raises:
        DataError: as of its kind.
    """
    kind = open_hdf5 if isinstance(source, Hdf5Source) else open_parquet
    return kind(content, source.path)


def open_hdf5(content: bytes | None, path: Path) -> OpenFile:
    """An HDF5 file with a dataset for each column; a row's number counts from 1.

    Raises:
        DataError: h5py is not installed, or the file is no such file.
    """
    try:
        import h5py
    except ImportError:
        raise DataError(f"{path}: HDF5 needs h5py: pip install 'tuner[hdf5]'") from None
    with _readable(path, OSError, "HDF5"):
        held = h5py.File(path if content is None else io.BytesIO(content), "r")
        columns = {n: each for n, each in held.items() if getattr(each, "ndim", 0) == 1}
        lengths = {len(each) for each in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        found = excerpt(", ".join(f"{n!r} ({len(each)})" for n, each in columns.items()))
        raise DataError(
            f"{path}: at its top a dataset of one dimension for each column is expected, all of "
            f"one length; there are: {found or 'none'}"
        )
    rows = lengths.pop()

    def read(wanted: Sequence[str], texts: Sequence[str]) -> Read:
        _refuse_many(path, rows, wanted)
        for name in wanted:
            column = columns[name]
            with _readable(path, OSError, "HDF5"):
                text = h5py.check_string_dtype(column.dtype) is not None
                cells = pd.Series(column.asstr()[:] if text else column[:], name=name)
            cells.attrs["kind"] = "string" if text else str(column.dtype)
            yield name, cells.astype(str) if name in texts else cells

    def blocks(wanted: Sequence[str]) -> Blocks:
        for name in wanted:
            if columns[name].dtype.kind not in "biuf":
                raise _no_numbers(path, name, columns[name].dtype)
        for first in range(0, rows, ROWS_AT_ONCE):
            with _readable(path, OSError, "HDF5"):
                parts = [columns[name][first : first + ROWS_AT_ONCE] for name in wanted]
            yield np.column_stack(parts).astype(np.float64)

    counted = np.arange(1, rows + 1)
    return OpenFile(head=str(path), names=[*columns], rows=counted, read=read, blocks=blocks)


def _no_numbers(path: Path, name: str, kind: object) -> DataError:
    return DataError(f"{path}, column {name!r}: holds {excerpt(str(kind))}, expected numbers")


def _refuse_many(path: Path, rows: int, wanted: Sequence[str]) -> None:
    if rows * max(1, len(wanted)) > MOST_CELLS:
        most = f"at most {MOST_CELLS:,} cells are read at once; split the file"
        raise DataError(f"{path}: has {rows:,} rows in {len(wanted)} used columns, {most}")


MOST_CELLS = 100_000_000
"""Numbers in the used columns: a small file may claim to hold more than any memory."""


def is_parquet(content: bytes, path: Path) -> bool:
    """Whether a file is one, or is to be, by its name."""
    return content.startswith(b"PAR1") or path.suffix.lower() in (".parquet", ".pq")


def open_parquet(content: bytes | None, path: Path) -> OpenFile:
    """A Parquet file, its counts within limits; a row's number counts from 1. Without its `content`
    it is read from its path, as much as is asked for.

    Raises:
        DataError: pyarrow is not installed, or the file is no Parquet file, or too large.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{path}: Parquet needs pyarrow: pip install 'tuner[parquet]'") from None
    with _readable(path, pa.ArrowException):
        place = path if content is None else io.BytesIO(content)
        # Through a buffer: else all of a row group is read for its first rows.
        file = pq.ParquetFile(place, pre_buffer=False, buffer_size=1 << 16)
        rows = file.metadata.num_rows

    def read(wanted: Sequence[str], texts: Sequence[str]) -> Read:
        _refuse_many(path, rows, wanted)
        for name in wanted:
            with _readable(path, pa.ArrowException):
                column = file.read(columns=[name]).column(0)
                cells = _as_pandas(column, name in texts)
            cells.attrs["kind"] = excerpt(str(column.type))
            yield name, cells.rename(name)

    def blocks(wanted: Sequence[str]) -> Blocks:
        with _readable(path, pa.ArrowException):
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(wanted)):
                found = np.empty((batch.num_rows, len(wanted)))
                for place, name in enumerate(wanted):
                    column = batch.column(name)
                    cells = _as_pandas(column, text=False)
                    if cells.dtype.kind not in "biuf":
                        raise _no_numbers(path, name, column.type)
                    found[:, place] = cells.to_numpy(dtype=np.float64, na_value=np.nan)
                yield found

    if not rows:
        raise DataError(f"{path}: the file has no rows")
    names, counted = file.schema_arrow.names, np.arange(1, rows + 1)
    return OpenFile(head=str(path), names=names, rows=counted, read=read, blocks=blocks)


@contextmanager
def _readable(file: Path, own: type[Exception], kind: str = "Parquet") -> Iterator[None]:
    try:
        yield
    except (own, OSError, ValueError, MemoryError) as error:
        why = excerpt(first_line(error), at_most=120)
        raise DataError(f"{file}: cannot be read as {kind} ({why}); write it again") from None


def _as_pandas(column: Any, text: bool) -> pd.Series[Any]:
    """A column of pyarrow: numbers as float64, or as texts where they are names; what has no plain
    kind of pandas stays an object.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"), safe=False)
    elif pa.types.is_decimal(kind):  # through texts, which are read exactly
        column = column.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        as_text = text and pa.types.is_integer(kind)
        column = column.cast(pa.string() if as_text else pa.float64(), safe=False)
    found: pd.Series[Any] = column.to_pandas()
    return found
