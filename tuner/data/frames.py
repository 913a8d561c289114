"""Tables as files: rows to forecast from, and forecasts. CSV or Parquet, by the name's ending."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.display.text import in_csv
from tuner.errors import DataError, TunerError, UsageError, first_line
from tuner.files.durable import open_plain, put

if TYPE_CHECKING:
    import pandas as pd

CSV, PARQUET = ".csv", ".parquet"
EMPTY_CELLS = ["", "NA", "NaN", "nan", "null"]
"""What a number's cell holds where there is none."""


def check_frame_kind(path: Path) -> None:
    """Refuse, before any work, a name whose ending says no kind of table, or one that this
    installation cannot read and write.

    Raises:
        UsageError: it ends otherwise.
        TunerError: pyarrow is missing.
    """
    if path.suffix.lower() not in (CSV, PARQUET):
        raise UsageError(f"{path}: a table is {CSV} or {PARQUET}; end the name with one of them")
    if path.suffix.lower() == PARQUET and importlib.util.find_spec("pyarrow") is None:
        raise TunerError(
            f"{path}: Parquet needs pyarrow: pip install 'tuner[parquet]' (or use {CSV})"
        )


def read_frame(
    path: Path, *, texts: Sequence[str], separator: str = ",", decimal: str = "."
) -> pd.DataFrame:
    """The table in a file, its columns' names stripped of blanks.

    Args:
        path: a .csv or .parquet.
        texts: columns of a CSV that are read as texts; others are numbers where they can be.
        separator: between cells of a CSV.
        decimal: of numbers in a CSV.

    Raises:
        UsageError: no such file, or a name that ends otherwise.
        DataError: it cannot be read as what its name says.
    """
    check_frame_kind(path)
    try:
        with open_plain(path) as file:
            content = file.read()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a table with recent rows") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if path.suffix.lower() == PARQUET:
        return _read_parquet(path, content)
    return _read_csv(path, content, texts, separator, decimal)


def as_csv(frame: pd.DataFrame) -> str:
    """A table as a CSV; a spreadsheet takes no name in it for a formula."""
    texts = {str(n): each.map(in_csv) for n, each in frame.items() if each.dtype.kind == "O"}
    return frame.assign(**texts).rename(columns=in_csv).to_csv(index=False)


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a table in one step.

    Raises:
        TunerError: the disk does not take it.
    """
    content = io.BytesIO()
    if path.suffix.lower() == PARQUET:
        frame.to_parquet(content, engine="pyarrow", index=False)
    else:
        content.write(as_csv(frame).encode())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, content.getvalue())
    except OSError as error:
        raise TunerError(f"{path}: cannot be written ({error.strerror})") from None


def _read_parquet(path: Path, content: bytes) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    try:
        return pd.read_parquet(io.BytesIO(content), engine="pyarrow").rename(
            columns=lambda name: str(name).strip()
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({first_line(error)})") from None


def _read_csv(
    path: Path, content: bytes, texts: Sequence[str], separator: str, decimal: str
) -> pd.DataFrame:
    import pandas as pd

    try:
        header = pd.read_csv(io.BytesIO(content), sep=separator, encoding="utf-8-sig", nrows=0)
        _check_separator(path, list(map(str, header.columns)))
        _refuse_twice(path, _names_in(content, separator))
        kept = [name for name in header.columns if str(name).strip() in texts]
        return pd.read_csv(
            io.BytesIO(content),
            sep=separator,
            decimal=decimal,
            encoding="utf-8-sig",
            dtype=dict.fromkeys(kept, str),
            keep_default_na=False,
            na_values={name: EMPTY_CELLS if name not in kept else [""] for name in header.columns},
        ).rename(columns=lambda name: str(name).strip())
    except ValueError as error:  # of pandas, too; it holds what cannot be decoded
        raise DataError(f"{path}: cannot be read as CSV ({first_line(error)})") from None


def _names_in(content: bytes, separator: str) -> list[str]:
    """As they stand in the first line: pandas renames what is there twice."""
    import pandas as pd

    first = pd.read_csv(
        io.BytesIO(content),
        sep=separator,
        encoding="utf-8-sig",
        header=None,
        nrows=1,
        dtype=str,
        keep_default_na=False,
    )
    return [str(name).strip() for name in first.iloc[0]]


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if name and names.count(name) > 1:
            raise DataError(f"{path}: has two columns {name!r}; leave one of them out")


def _check_separator(path: Path, columns: Sequence[str]) -> None:
    if len(columns) > 1:
        return
    for other in (";", "\t", "|", ","):
        if other in columns[0]:
            shown = "tab" if other == "\t" else repr(other)
            raise DataError(f"{path}: its cells look separated by {shown}; say so with --separator")
