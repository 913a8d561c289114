"""The kinds of source that a task may name: ETT, generated series, a CSV or a Parquet file."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator

from tuner.files.plain import Label

# Paths with wildcards, much as a shell reads them: `*`, `?`, and `**` for any depth of folders.


WILDCARDS = "*?"
ANY_DEPTH = "**"


def is_wild(text: str) -> bool:
    """Whether a path, or a part of one, has a wildcard."""
    return any(each in text for each in WILDCARDS)


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


def problem_of(path: Path) -> str:
    """What is wrong with a path's wildcards, in words; empty where nothing is."""
    parts = at_first_wildcard(path)[1]
    for part in parts:
        if ANY_DEPTH in part and part != ANY_DEPTH:
            return f"in {part!r}, ** is not a folder by itself; write '*', or '**/' before it"
    if parts.count(ANY_DEPTH) > 1 or parts[-1:] == (ANY_DEPTH,):
        return "** stands once, and not last: 'runs/**/series.csv'"
    if ".." in parts:
        return "'..' after a wildcard finds files twice; leave it out"
    return ""


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
        if each.is_dir() and (rest or is_wild(part)):
            if rest:
                yield from files_found(each, rest)
        elif not rest:
            if not each.is_file():
                raise ValueError(f"{each} is no regular file; leave it out, or put a file there")
            yield each


def _found(folder: Path, part: str) -> Iterator[Path]:
    """What a folder has by this name, or by names that fit; nothing where it is none."""
    if not is_wild(part):
        if os.path.lexists(folder / part):
            yield folder / part
        return
    try:
        names = sorted(each.name for each in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        hidden = name.startswith(".") and not part.startswith(".")
        if hidden or not fnmatchcase(name, part.replace("[", "[[]")):
            continue
        if not name.isprintable():
            raise ValueError(f"the name {name!a} in {str(folder)!a} is no text; rename it")
        yield folder / name


Name = Label

HOW_WRITTEN = ("path", "header", "separator", "decimal", "encoding", "time_format")
"""Keys that say where a file lies and in what dialect it is written: what it holds they do not."""

LATER: Mapping[str, Any] = {
    "index": False, "start": None, "timezone": None, "gaps": "refuse", "fill": "forward",
    "runs": None,
}  # fmt: skip
"""Keys that task files did not always have, at their defaults: there they are left out of what a
task is, so that studies of before keep their identity.
"""

DEFAULT_TIME_COLUMN = "ds"


class Frozen(BaseModel):
    """A part of a task file: no key beyond those named, and nothing changes afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EtthSource(Frozen):
    """ETTh1 and ETTh2 of the ETDataset: two series of hourly data."""

    kind: Literal["etth"]


class DemoSource(Frozen):
    """Generated hourly series; `rows` hours each."""

    kind: Literal["demo"]
    rows: int = Field(default=400, ge=1, le=1_000_000)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)


class FileSource(Frozen):
    """The user's own file: what it holds.

    Without `id_column` the file is wide: one row per timestamp, one series, named like the task.
    With it the file is long: the rows of several series stacked or interleaved, each series named
    by its id, numbered in the order in which the ids first appear. `path` is relative to the folder
    of the task file.

    Timestamps are ISO 8601 unless `time_format` (as in Python's strptime) says otherwise; those
    with an offset are converted to UTC, those without are in `timezone` where one is named. With
    `index` there is no time column: the rows are counted, and dated only where there is a `start`.

    `gaps`: missing rows are refused; or filled, empty cells too, with the value before (`fill`
    "forward") or on a line between the neighbours ("interpolate"); or skipped: the rows that are
    there count as consecutive.

    A `path` with a wildcard names many files, each a run of time by itself, all of one series named
    like the task: no window crosses files, and all are scaled by the range of all training rows.
    `runs` says how they are split: "by_file" deals whole files to training, validation and test, by
    a hash of their names; "by_time" cuts each file. The wildcards are `*`, `?` and `**/`, as in
    `tuner.data.source_kinds`.
    """

    path: Path
    runs: Literal["by_file", "by_time"] | None = Field(default=None, validate_default=True)
    index: bool = False
    time_column: Name | None = Field(default=None, validate_default=True)
    id_column: Name | None = Field(default=None, validate_default=True)
    time_format: Name | None = None
    start: Name | None = None
    timezone: Name | None = None
    gaps: Literal["refuse", "fill", "skip"] = "refuse"
    fill: Literal["forward", "interpolate"] = "forward"
    _folder: Path = PrivateAttr(default=Path())
    """Of the task file: a wildcard in its name is none."""

    @field_validator("path")
    @classmethod
    def _wildcards_can_be_read(cls, value: Path) -> Path:
        if problem := problem_of(value):
            raise ValueError(problem)
        return value

    @field_validator("runs")
    @classmethod
    def _runs_are_the_files_of_a_pattern(
        cls, value: str | None, info: ValidationInfo
    ) -> str | None:
        several = "path" in info.data and is_wild(str(info.data["path"]))
        if several and value is None:
            return "by_file"
        if value is not None and not several:
            raise ValueError(
                "belongs to a path with a wildcard, such as 'run_*/series.csv'; leave it out"
            )
        return value

    @field_validator("id_column")
    @classmethod
    def _each_file_is_one_run(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("runs"):
            raise ValueError(
                "each file of a pattern is one run of one series; leave it out, or name one file"
            )
        return value

    @field_validator("time_column")
    @classmethod
    def _an_index_has_no_time_column(cls, value: str | None, info: ValidationInfo) -> str | None:
        if not info.data.get("index"):
            return value or DEFAULT_TIME_COLUMN
        if value is not None:
            raise ValueError("index = true says that the file has no times; leave one of them out")
        return None

    @field_validator("start")
    @classmethod
    def _start_is_a_date_of_an_index(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if not info.data.get("index"):
            raise ValueError("belongs to index = true: the file has times of its own; leave it out")
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is not None:
            raise ValueError(f"a date such as '1990-01-01' is expected, got {value!r}")
        return value

    @field_validator("timezone")
    @classmethod
    def _timezone_is_known(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("index"):
            raise ValueError("belongs to times, and index = true says there are none; leave it out")
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"unknown time zone {value!r}; use for example 'Europe/Berlin', 'America/New_York'"
            ) from None
        return value

    @field_validator("gaps")
    @classmethod
    def _an_index_has_no_gaps_to_skip(cls, value: str, info: ValidationInfo) -> str:
        if value == "skip" and info.data.get("index"):
            raise ValueError("the rows of an index are counted, none is missing; leave it out")
        return value

    @field_validator("fill")
    @classmethod
    def _fill_says_how(cls, value: str, info: ValidationInfo) -> str:
        if value != "forward" and info.data.get("gaps", "fill") != "fill":
            raise ValueError(f"{value!r} says how gaps are filled; set gaps = 'fill' as well")
        return value

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

    def what_it_holds(self) -> dict[str, Any]:
        """The keys that are part of what a task is, as plain data."""
        plain = self.model_dump(mode="json", exclude=set(HOW_WRITTEN))
        return _without_defaults(plain)

    def noted(self) -> dict[str, Any]:
        """All keys, the path only as the file's name, as plain data that this model takes."""
        plain = self.model_dump(mode="json") | {"path": self.path.name}
        return _without_defaults(plain)


class CsvSource(FileSource):
    """The user's own CSV. Without a `header` its columns are column_1, column_2, ...; a column
    whose cell in the header is empty is called so, too.
    """

    kind: Literal["csv"]
    header: bool = True
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    decimal: Literal[".", ","] = "."
    encoding: Name = "utf-8"

    @field_validator("decimal")
    @classmethod
    def _decimal_is_not_the_separator(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("separator") == value:
            raise ValueError(f"{value!r} is the separator as well; set separator = ';'")
        return value

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, value: str) -> str:
        try:
            "".encode(value)
        except (LookupError, ValueError):
            raise ValueError(
                f"unknown encoding {value!r}; use for example utf-8, cp1252, latin-1, utf-16"
            ) from None
        return value


class ParquetSource(FileSource):
    """The user's own Parquet file."""

    kind: Literal["parquet"]


Source = Annotated[EtthSource | DemoSource | CsvSource | ParquetSource, Field(discriminator="kind")]

OwnFile = Annotated[CsvSource | ParquetSource, Field(discriminator="kind")]
OF_FILES = ("csv", "parquet")
"""The kinds whose file is the user's."""


def _without_defaults(plain: dict[str, Any]) -> dict[str, Any]:
    defaults = {**LATER, "header": True}
    return {key: value for key, value in plain.items() if defaults.get(key, ...) != value}
