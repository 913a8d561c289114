"""The kinds of source that a task may name: ETT, generated series, a CSV, Parquet or HDF5 file."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from tuner.files.plain import Label

# Paths with wildcards, much as a shell reads them: `*`, `?`, and `**` for any depth of folders.


ANY_DEPTH = "**"


def is_wild(text: str) -> bool:
    """Whether a path, or a part of one, has a wildcard."""
    return "*" in text or "?" in text


def at_first_wildcard(path: Path, known: int = 0) -> tuple[Path, tuple[str, ...]]:
    """The folder before the first wildcard, and the parts from there; no part where there is none.

    Args:
        path: with wildcards.
        known: so many parts from the first on are names, whatever they look like.
    """
    for n, part in enumerate(path.parts):
        if n >= known and is_wild(part):
            return Path(*path.parts[:n]), path.parts[n:]
    return path, ()


def problem_of(path: Path) -> str | None:
    """What is wrong with a path's wildcards, in words; None where nothing is."""
    parts = at_first_wildcard(path)[1]
    deep = [part for part in parts if ANY_DEPTH in part]
    if ".." in parts or deep not in ([], [ANY_DEPTH]) or parts[-1:] == (ANY_DEPTH,):
        return (
            "** stands once, by itself, and not last, and '..' not after a wildcard: "
            "'runs/**/series.csv'"
        )
    return None


def files_found(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files below `root` that the parts of a path find, in the order of their names.

    Raises:
        OSError: a folder cannot be read; `filename` is which.
        ValueError: what is found is neither a file nor a folder, or cannot be shown.
    """
    part, rest = parts[0], parts[1:]
    if part == ANY_DEPTH:
        yield from files_found(root, rest)
        for each in _found(root, "*"):
            if each.is_dir() and not each.is_symlink():  # links may lead round in a circle
                yield from files_found(each, parts)
        return
    for each in _found(root, part):
        if rest:
            yield from files_found(each, rest) if each.is_dir() else ()
        elif each.is_file():
            yield each
        elif not (each.is_dir() and is_wild(part)):
            raise ValueError(f"{each} is no regular file; leave it out, or put a file there")


def _found(folder: Path, part: str) -> Iterator[Path]:
    """What a folder has by this name, or by names that fit; nothing where it is none."""
    if not is_wild(part):
        yield from (folder / part,) if os.path.lexists(folder / part) else ()
        return
    shown = part.replace("[", "[[]")
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        hidden = each.name.startswith(".") and not part.startswith(".")
        if not hidden and fnmatchcase(each.name, shown):
            if not each.name.isprintable():
                raise ValueError(f"the name {each.name!a} in {str(folder)!a} is no text; rename it")
            yield each


Name = Label

DEFAULT_TIME_COLUMN = "ds"
Columns = Name | Annotated[tuple[Name, ...], Field(min_length=1, max_length=8)]


def listed(columns: Columns | None) -> tuple[Name, ...]:
    """One name or several, as several."""
    if columns is None:
        return ()
    return (columns,) if isinstance(columns, str) else columns


class Frozen(BaseModel):
    """A part of a task file: no key beyond those named, and nothing changes afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @field_validator("*")
    @classmethod
    def _is_fit(cls, value: Any, info: ValidationInfo) -> Any:
        if problem := cls.problem(str(info.field_name), value, info.data):
            raise ValueError(problem)
        return value

    @classmethod
    def problem(cls, key: str, value: Any, before: Mapping[str, Any]) -> str | None:
        """What is wrong with the value of a key, beyond its type, by the keys before it; None where
        nothing is.
        """
        del key, value, before
        return None


class EtthSource(Frozen):
    """ETTh1 and ETTh2 of the ETDataset: two series of hourly data."""

    kind: Literal["etth"]


class DemoSource(Frozen):
    """Generated hourly series; `rows` hours each."""

    kind: Literal["demo"]
    rows: int = Field(default=400, ge=1, le=1_000_000)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)


class Dialect(Frozen):
    """How a file is written. It is found out once, stands in the task file, goes with the study and
    with each saved model, and is what every command reads by.

    Of a CSV: `skip_rows` lines stand above the header, and a row of units may stand below it.
    Without a `header` its columns are column_1, column_2, ...; a column whose cell in the header is
    empty is called so, too. `thousands` is the mark between groups of three digits. With
    `dates_across` a row is a series, and the header has a column for each time: what stands in
    these cells is the one target. `time_format` is as in `tuner.data.times`.
    """

    header: bool = True
    skip_rows: int = Field(default=0, ge=0, le=10_000)
    units_row: bool = False
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", " ", "'"] | None = None
    encoding: Name = "utf-8"
    dates_across: bool = False

    @classmethod
    def problem(cls, key: str, value: Any, before: Mapping[str, Any]) -> str | None:
        """As of its parent."""
        match key:
            case "decimal" if value == before.get("separator"):
                return f"{value!r} is the separator as well; set separator = ';'"
            case "thousands" if value is not None and value == before.get("decimal"):
                return f"{value!r} is the decimal mark as well; set one of them to another"
            case "encoding" if not _works("".encode, value):
                return f"unknown encoding {value!r}; use for example utf-8, cp1252, latin-1, utf-16"
        return None


def _works(call: Callable[[Any], Any], value: Any) -> bool:
    try:
        call(value)
    except (LookupError, ValueError, TypeError, OSError):
        return False
    return True


def zone_problem(name: str) -> str | None:
    """What is wrong with the name of a time zone; None where there is such a zone."""
    if _works(ZoneInfo, name):
        return None
    return f"unknown time zone {name!r}; use for example 'Europe/Berlin', 'America/New_York'"


def _as_plain_date(text: str) -> None:
    if datetime.datetime.fromisoformat(text).tzinfo is not None:
        raise ValueError


HOW_WRITTEN = {"time_format", *Dialect.model_fields}
"""Keys that say in what dialect a file is written: what it holds they do not."""


JOINED: Literal["joined"] = "joined"
"""Files that are parts of one: how many there are is how it is written, and not what it holds."""


class FileSource(Frozen):
    """The user's own file: what it holds.

    Without `id_column` the file is wide: one row per timestamp, one series, named like the task.
    With it the file is long: the rows of several series stacked or interleaved, each series named
    by its id, numbered in the order in which the ids first appear. `path` is relative to the folder
    of the task file.

    Timestamps are ISO 8601 unless `time_format` says otherwise; those with an offset are converted
    to UTC, those without are in `timezone` where one is named. Of steps of a day or more, the day
    is the one that the rows name. A time, or an id, may stand in several columns: they are joined
    with a blank, and with a slash. `round_times` takes times to the nearest ones of the frequency.
    With `index` there is no time column: the rows are counted, and dated only where there is a
    `start`. `short_series` says whether a series too short for a window is left out.

    `gaps`: missing rows are refused; or filled, empty cells too, with the value before (`fill`
    "forward") or on a line between the neighbours ("interpolate"); or skipped: the rows that are
    there count as consecutive.

    A `path` with a wildcard names many files, each a run of time by itself, all of one series named
    like the task: no window crosses files, and all are scaled by the range of all training rows.
    `runs` says how they are split: "by_file" deals whole files to training, validation and test, by
    a hash of their names; "by_time" cuts each file. With "joined" they are parts of one file, whose
    rows follow each other in the order of the names. The wildcards are `*`, `?` and `**/`, as in
    `tuner.data.source_kinds`.
    """

    path: Path
    runs: Literal["by_file", "by_time", "joined"] | None = Field(
        default=None, validate_default=True
    )
    index: bool = False
    time_column: Columns | None = Field(default=None, validate_default=True)
    id_column: Columns | None = Field(default=None, validate_default=True)
    round_times: bool = False
    short_series: Literal["refuse", "leave out"] = "refuse"
    time_format: Name | None = None
    start: Name | None = None
    timezone: Name | None = None
    gaps: Literal["refuse", "fill", "skip"] = "refuse"
    fill: Literal["forward", "interpolate"] = "forward"
    _folder: Path = PrivateAttr(default=Path())
    """Of the task file: a wildcard in its name is none."""

    @field_validator("runs", "time_column")
    @classmethod
    def _usually(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name == "runs":
            return "by_file" if is_wild(str(info.data.get("path"))) else None
        if value is None and not info.data.get("index"):
            return DEFAULT_TIME_COLUMN
        return value

    @classmethod
    def problem(cls, key: str, value: Any, before: Mapping[str, Any]) -> str | None:  # noqa: C901, PLR0911 - one for each key
        """As of its parent."""
        index = before.get("index")
        match key:
            case _ if value is None:
                return None
            case "path":
                return problem_of(value)
            case "runs" if not is_wild(str(before.get("path"))):
                return "belongs to a path with a wildcard, such as 'run_*/series.csv'; leave it out"
            case "id_column" if before.get("runs") not in (None, JOINED):
                return "each file of a pattern is a run of one series; leave it out"
            case "time_column" if index:
                return "index = true says that the file has no times; leave one of them out"
            case "start" if not index:
                return "belongs to index = true: the file has times of its own; leave it out"
            case "start" if not _works(_as_plain_date, value):
                return f"a date such as '1990-01-01' is expected, got {value!r}"
            case "timezone" if index:
                return "belongs to times, and index = true says there are none; leave it out"
            case "timezone":
                return zone_problem(value)
            case "gaps" if value == "skip" and index:
                return "the rows of an index are counted, none is missing; leave it out"
            case "fill" if value != "forward" and before.get("gaps", "fill") != "fill":
                return f"{value!r} says how gaps are filled; set gaps = 'fill' as well"
        return super().problem(key, value, before)

    def placed_in(self, folder: Path) -> Self:
        """As a task file in this folder names it: with an absolute path."""
        path = (folder / self.path.expanduser()).absolute()
        placed = self.model_copy(update={"path": path})
        placed._folder = folder.absolute()  # noqa: SLF001 - of this very class
        return placed

    def pattern(self) -> tuple[Path, tuple[str, ...]]:
        """The folder before the path's first wildcard, and the parts from there."""
        inside = self.path.is_relative_to(self._folder)
        return at_first_wildcard(self.path, len(self._folder.parts) if inside else 0)

    @property
    def apart(self) -> Literal["by_file", "by_time"] | None:
        """How files that are runs of their own are split; None of one file, also one in parts."""
        return None if self.runs == JOINED else self.runs

    @property
    def marks(self) -> tuple[str, str | None]:
        """What stands before decimals, and between thousands, in texts."""
        return ".", None

    @property
    def dialect(self) -> dict[str, Any]:
        """How the file is written, as plain data: what differs from the usual."""
        return self.model_dump(mode="json", include=HOW_WRITTEN, exclude_defaults=True)

    def what_it_holds(self) -> dict[str, Any]:
        """The keys that are part of what a task is, as plain data. What is as usual is left out, so
        that a new key changes no task of before; these two were always told.
        """
        unasked = {"path", *HOW_WRITTEN, *(["runs"] if self.runs == JOINED else [])}
        plain = self.model_dump(mode="json", exclude=unasked, exclude_defaults=True)
        return {"time_column": None, "id_column": None} | plain

    def noted(self) -> dict[str, Any]:
        """All keys, the path only as the file's name, as plain data that this model takes."""
        plain = self.model_dump(mode="json", exclude_defaults=True)
        return plain | {"path": self.path.name}


class CsvSource(FileSource, Dialect):
    """The user's own CSV."""

    kind: Literal["csv"]

    @property
    def marks(self) -> tuple[str, str | None]:
        """As of its parent."""
        return self.decimal, self.thousands


class TypedSource(FileSource):
    """The user's own file, whose columns have types, and can be read in pieces."""


class ParquetSource(TypedSource):
    """A Parquet file."""

    kind: Literal["parquet"]


class Hdf5Source(TypedSource):
    """An HDF5 file: at its top a dataset of one dimension for each column."""

    kind: Literal["hdf5"]


Source = Annotated[
    EtthSource | DemoSource | CsvSource | ParquetSource | Hdf5Source, Field(discriminator="kind")
]

OwnFile = Annotated[CsvSource | ParquetSource | Hdf5Source, Field(discriminator="kind")]
OF_FILES = ("csv", "parquet", "hdf5")
"""The kinds whose file is the user's."""
