"""A task: which data, which windows, which covariates, which quantiles. `etth`, `demo`, or a TOML
file.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from tuner.config import ModelShapes, MqlSplit, Objective
from tuner.data.source_kinds import (
    OF_FILES,
    DemoSource,
    EtthSource,
    FileSource,
    Frozen,
    Name,
    Source,
)
from tuner.errors import DataError, UsageError, guess, unknown_name
from tuner.files.durable import read_regular
from tuner.files.plain import Prose, excerpt
from tuner.files.toml_file import TomlDocument, read_toml, validate

# Where the targets of a task are: a small CSV that a task file names, read and checked.


MOST_BYTES = 4 << 20
"""Of a file of positions: more than ten thousand lines."""
LARGEST = 1e9
"""Of a coordinate, in any unit."""
EARTH_KM = 6371.0088
"""The mean radius."""
DIGITS = 6
"""Decimals of kilometres, so that the last bits of one machine's cosine do not change the hash."""

NAME, PLANE, GLOBE = "series", ("x", "y"), ("lat", "lon")
HEADER = "a header with the columns series,x,y or series,lat,lon is expected"
_BOUNDS = {"lat": 90.0, "lon": 180.0}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Python's own float takes more: 1_000, and the digits of other scripts."""

Coordinate = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class Position(Frozen):
    """Where a target is: on a plane, in any one unit of length; from `lat` and `lon`, kilometres
    east and north of the first target.
    """

    series: Name
    x: Coordinate
    y: Coordinate


def positions_of(
    document: TomlDocument, targets: Sequence[str], *, long: bool
) -> tuple[Position, ...]:
    """What the key `positions` of a task file names; nothing where there is no such key.

    Args:
        document: the task file.
        targets: its target columns.
        long: its series stand below each other.

    Raises:
        UsageError: no path, or a task whose targets are not the detectors.
        DataError: as `read_positions`.
    """
    named = document.data.get("positions")
    if named is None:
        return ()
    where = f"{document.where(('positions',))}: key 'positions'"
    if not isinstance(named, str) or not named:
        raise UsageError(f"{where}: the path of a CSV is expected, such as 'positions.csv'")
    if long:
        raise UsageError(
            f"{where}: says where target columns are, and here the series stand below each other "
            "(id_column); write a wide file, with a column for each detector"
        )
    try:
        path = (document.path.parent / Path(named).expanduser()).absolute()
        return read_positions(path, targets)
    except RuntimeError as error:  # of a home folder that nobody has
        raise UsageError(f"{where}: {error}") from None


def read_positions(path: Path, targets: Sequence[str]) -> tuple[Position, ...]:
    """The places of `targets`, in their order. Lines of others are not looked at.

    Raises:
        DataError: one line that names the file and the line or the target, and the remedy.
    """
    rows = _rows(_text(path), path)
    header = [cell.strip() for cell in next(rows, (1, []))[1]]
    axes = _axes(header, path)
    found: dict[str, tuple[float, float]] = {}
    for line, cells in rows:
        where = f"{path}, line {line}"
        if len(cells) != len(header):
            raise DataError(
                f"{where}: has {len(cells)} cells, the header has {len(header)}; correct the line"
            )
        name = cells[header.index(NAME)].strip()
        if name in found:
            raise DataError(
                f"{where}: {excerpt(name)!r} is there twice; keep one line for each series"
            )
        if name in targets:
            first, second = (_number(cells[header.index(axis)], axis, where) for axis in axes)
            found[name] = first, second
    for target in targets:
        if target not in found:
            raise DataError(
                f"{path}: says nothing of the target {excerpt(target)!r}{guess(target, found)}; "
                "add a line for it"
            )
    places = [found[target] for target in targets]
    if axes == GLOBE:
        places = _on_a_plane(places)
    return tuple(
        Position(series=target, x=x, y=y) for target, (x, y) in zip(targets, places, strict=True)
    )


def _text(path: Path) -> str:
    try:
        content = read_regular(path.resolve(), at_most=MOST_BYTES)
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such file; correct 'positions' in the task file, which is relative to it"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({reason}); name a CSV of positions") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: is not UTF-8 text; save the file as UTF-8") from None


def _rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, and the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: cannot be read as CSV ({error})") from None


def _axes(header: Sequence[str], path: Path) -> tuple[str, str]:
    there = [axes for axes in (PLANE, GLOBE) if set(axes) <= set(header)]
    if NAME not in header or not there:
        shown = ", ".join(repr(excerpt(cell)) for cell in header[:8]) or "nothing"
        raise DataError(f"{path}, line 1: {HEADER}, there is {shown}")
    if len(there) > 1:
        raise DataError(f"{path}, line 1: has x,y and lat,lon; keep one of the two pairs")
    for name in (NAME, *there[0]):
        if header.count(name) > 1:
            raise DataError(f"{path}, line 1: the column {name!r} is there twice; keep one")
    return there[0]


def _number(cell: str, axis: str, where: str) -> float:
    bound = _BOUNDS.get(axis, LARGEST)
    number = float(cell) if _NUMBER.fullmatch(cell.strip()) else math.nan
    if not abs(number) <= bound:
        raise DataError(
            f"{where}, column {axis!r}: a number from {-bound:g} to {bound:g} is expected, got "
            f"{excerpt(cell.strip())!r}"
        )
    return number


def _on_a_plane(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Degrees (latitude, longitude) as kilometres east and north of the first place.

    Equirectangular, about the mean latitude: within a region, a thousandth is the error.
    """
    middle = math.radians(sum(lat for lat, _ in places) / len(places))
    per_degree = math.radians(EARTH_KM)
    lat0, lon0 = places[0]
    found = []
    for lat, lon in places:
        east = (lon - lon0 + 180) % 360 - 180  # the short way round
        x = round(per_degree * math.cos(middle) * east, DIGITS)
        found.append((x, round(per_degree * (lat - lat0), DIGITS)))
    return found


# What keys of a task are checked for, beyond their types.


def checked_frequency(value: str, source: Source | None) -> str:
    """`value`, an alias of pandas.

    Raises:
        ValueError: it is none, or none of this source's.
    """
    if isinstance(source, EtthSource | DemoSource) and value != "h":
        raise ValueError(f"this source is hourly: 'h' is expected, got {value!r}")
    local = isinstance(source, FileSource) and source.timezone is not None
    if value in {"h", "min"} or (value == "D" and not local):
        return value  # the usual ones, without importing pandas
    from tuner.data.times import frequency_problem, within_a_day

    problem = frequency_problem(value)
    if problem is None and local and not within_a_day(value):
        problem = (
            f"source.timezone is for steps shorter than a day, got {value!r}: days have no "
            "daylight saving; leave timezone out"
        )
    if problem:
        raise ValueError(problem)
    return value


def named_once(names: tuple[str, ...], taken: Sequence[str]) -> tuple[str, ...]:
    """`names`, none of which is there twice or among `taken`.

    Raises:
        ValueError: one is.
    """
    for position, name in enumerate(names):
        if name in names[:position] or name in taken:
            raise ValueError(f"{name!r} is named twice; name each column once")
    return names


PROTOCOL_QUANTILES = (
    0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99,
)  # fmt: skip
"""The 17 levels the reference job trains on."""

PROTOCOL_EVAL_QUANTILES = (0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95)
"""The 7 levels its test MQL is averaged over."""

Calendar = Literal[
    "minute", "hour", "day_of_week", "day_of_month", "day_of_year", "month", "quarter"
]
MOST_COLUMNS, MOST_ROWS = 10_000, 1_000_000


class Task(Frozen):
    """What is to be forecast, and how it is measured.

    A row of data is one timestamp. `split` are the fractions of each series' rows, in time order,
    for training, validation and test. `past_covariates` are columns known only up to now,
    `future_covariates` columns known over the horizon too; `calendar` adds a sine and a cosine per
    cycle to the latter. `static_id` gives the model the series' number (0, 1, ...) as its one
    static covariate. `objective_series` names the series whose test MQL is the objective; None
    means the mean over all series. `objective` says in which units columns are averaged.
    `positions` are the places of the targets, in their order; a file has the path of a CSV.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)
    description: Prose = ""
    source: Source
    target_columns: tuple[Name, ...] = Field(min_length=1, max_length=MOST_COLUMNS)
    frequency: Name
    input_size: int = Field(ge=1, le=MOST_ROWS)
    horizon: int = Field(ge=1, le=MOST_ROWS)
    split: tuple[float, float, float] = (0.6, 0.2, 0.2)
    calendar: tuple[Calendar, ...] = ()
    past_covariates: tuple[Name, ...] = Field(default=(), max_length=MOST_COLUMNS)
    future_covariates: tuple[Name, ...] = Field(default=(), max_length=MOST_COLUMNS)
    static_id: bool = False
    quantiles: tuple[float, ...] = Field(default=PROTOCOL_QUANTILES, min_length=1, max_length=1000)
    eval_quantiles: tuple[float, ...] = Field(default=(), validate_default=True)
    objective_series: Name | None = None
    objective: Objective = Objective.MQL
    positions: tuple[Position, ...] = Field(default=(), max_length=MOST_COLUMNS)

    @field_validator("frequency")
    @classmethod
    def _frequency_is_an_alias(cls, value: str, info: ValidationInfo) -> str:
        return checked_frequency(value, info.data.get("source"))

    @field_validator("split")
    @classmethod
    def _split_is_a_partition(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if not all(0 < fraction < 1 for fraction in value) or abs(sum(value) - 1) > 1e-6:  # noqa: PLR2004
            raise ValueError(
                f"three fractions above 0 that add up to 1 are needed, got {list(value)}"
            )
        return value

    @field_validator("calendar")
    @classmethod
    def _cycles_arenamed_once(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        source = info.data.get("source")
        if value and isinstance(source, FileSource) and source.index and source.start is None:
            raise ValueError(
                "index = true: the rows have no dates; leave calendar empty, or date the first row "
                "with start = '1990-01-01' under [source]"
            )
        return named_once(value, ())

    @field_validator("target_columns", "past_covariates", "future_covariates")
    @classmethod
    def _columns_arenamed_once(
        cls, value: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        source = info.data.get("source")
        taken: list[str] = []
        if isinstance(source, FileSource):
            taken += [column for column in (source.time_column, source.id_column) if column]
        for field in ("target_columns", "past_covariates", "future_covariates"):
            if field != info.field_name:
                taken += info.data.get(field, ())
        if (
            info.field_name != "target_columns"
            and value
            and source is not None
            and not isinstance(source, FileSource)
        ):
            raise ValueError(f"the source {source.kind!r} has no covariate columns; leave it empty")
        return named_once(value, taken)

    @field_validator("quantiles")
    @classmethod
    def _quantiles_ascend(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < level < 1 for level in value) or not all(a < b for a, b in pairwise(value)):
            raise ValueError(f"ascending levels between 0 and 1 are needed, got {list(value)}")
        return value

    @field_validator("eval_quantiles")
    @classmethod
    def _evaluated_levels_are_trained(
        cls, value: tuple[float, ...], info: ValidationInfo
    ) -> tuple[float, ...]:
        trained = info.data.get("quantiles")
        if trained is None:  # reported already
            return value
        if not value:  # the protocol's seven where all are trained, else every trained level
            return (
                PROTOCOL_EVAL_QUANTILES if set(PROTOCOL_EVAL_QUANTILES) <= set(trained) else trained
            )
        stray = [level for level in value if level not in trained]
        if stray or not all(a < b for a, b in pairwise(value)):
            raise ValueError(
                f"ascending levels from quantiles are needed, got {stray or list(value)}"
            )
        return value

    @field_validator("positions")
    @classmethod
    def _positions_are_of_the_targets(
        cls, value: tuple[Position, ...], info: ValidationInfo
    ) -> tuple[Position, ...]:
        targets = info.data.get("target_columns", ())
        if value and tuple(each.series for each in value) != targets:
            raise ValueError("a place for each target column is expected, in the columns' order")
        return value

    @property
    def columns(self) -> tuple[Name, ...]:
        """Targets, past covariates, future covariates: those of a file that are used for values."""
        return (*self.target_columns, *self.past_covariates, *self.future_covariates)

    @property
    def window(self) -> int:
        """Rows of one window: input and horizon."""
        return self.input_size + self.horizon

    @property
    def usual_split(self) -> MqlSplit:
        """Whose MQL is minimised where nobody says: the test split's in the reference job, whose
        team had it so, and in the demonstration; the validation split's of data of one's own.
        """
        built_in = isinstance(self.source, EtthSource | DemoSource)
        return MqlSplit.TEST if built_in else MqlSplit.VAL

    @property
    def eval_index(self) -> tuple[int, ...]:
        """Position of each evaluated level among the trained ones."""
        return tuple(self.quantiles.index(level) for level in self.eval_quantiles)

    def definition(self) -> dict[str, Any]:
        """What makes this task this task, as plain JSON-able data.

        Left out: the description, and where and in what dialect the file is written. The identity
        of the data is the hash of its content (`PreparedData.data_hash`).
        """
        plain = self.model_dump(mode="json", exclude={"description"})
        if isinstance(self.source, FileSource):
            plain["source"] = self.source.what_it_holds()
        if self.objective is Objective.MQL:  # tasks of before there were others keep their hash
            del plain["objective"]
        if not self.positions:  # nor did tasks know where their targets are
            del plain["positions"]
        return plain


def task_of(definition: Mapping[str, Any]) -> Task:
    """The task of a stored definition, as strictly as that of a file.

    It has no path (data is identified by its hash), so a file's is made up.

    Raises:
        ValueError: it describes no task.
    """
    source = definition.get("source")
    if isinstance(source, dict) and source.get("kind") in OF_FILES:
        path = "*" if source.get("runs") else "."
        definition = {**definition, "source": {"path": path, **source}}
    return Task.model_validate_json(json.dumps(definition), strict=True)


def shapes(task: Task) -> ModelShapes:
    """The sizes the task asks of a model."""
    return ModelShapes(
        input_size=task.input_size,
        horizon=task.horizon,
        n_targets=len(task.target_columns),
        n_past=len(task.past_covariates),
        n_future=len(task.future_covariates) + 2 * len(task.calendar),
        n_static=int(task.static_id),
        n_quantiles=len(task.quantiles),
        positions=tuple((each.x, each.y) for each in task.positions),
    )


def etth_task() -> Task:
    """The reference job (BENCHMARK: hourly ETTh1 and ETTh2, 168 h in, 24 h out)."""
    return Task(
        name="etth",
        description="ETTh1 and ETTh2, hourly: 168 h in, 24 h out; the reference job",
        source=EtthSource(kind="etth"),
        target_columns=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
        frequency="h",
        input_size=168,
        horizon=24,
        calendar=("hour", "day_of_week", "month"),
        static_id=True,
        objective_series="ETTh1",
    )


def demo_task() -> Task:
    """Two small generated series: a CPU trial takes seconds, and nothing is downloaded."""
    return Task(
        name="demo",
        description="two generated hourly series with daily and weekly cycles: 24 h in, 6 h out; "
        "small and offline",
        source=DemoSource(kind="demo"),
        target_columns=("load", "heat", "flow"),
        frequency="h",
        input_size=24,
        horizon=6,
        calendar=("hour", "day_of_week"),
        static_id=True,
    )


_BUILT_IN = {"demo": demo_task, "etth": etth_task}


def load_task(name_or_path: str) -> Task:
    """A built-in task by name, or a task file: anything that ends in `.toml` or contains a slash.

    Raises:
        UsageError: unknown name, or a task file that is missing or wrong (file, line and key are
            named).
    """
    if (path := task_file(name_or_path)) is not None:
        return _load_file(path)
    if name_or_path not in _BUILT_IN:
        raise unknown_name(
            "task", name_or_path, _BUILT_IN, more="; or the path of a task file ending in .toml"
        )
    return _BUILT_IN[name_or_path]()


def task_file(name_or_path: str) -> Path | None:
    """The task file that is named; None where a built-in task is."""
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path).expanduser()
    return None


def _load_file(path: Path) -> Task:
    document = read_toml(path)
    named = {key: value for key, value in document.data.items() if key != "positions"}
    task = validate(replace(document, data=named), Task)
    if task.name in _BUILT_IN:
        where = document.where(("name",))
        raise UsageError(
            f"{where}: key 'name': {task.name!r} is a built-in task; choose another name"
        )
    long = isinstance(task.source, FileSource) and task.source.id_column is not None
    places = positions_of(document, task.target_columns, long=long)
    task = task.model_copy(update={"positions": places})
    if isinstance(task.source, FileSource):
        task = task.model_copy(update={"source": task.source.placed_in(path.parent)})
    return task


# Quantile levels that belong together.


def symmetric_pairs(levels: Sequence[float]) -> list[tuple[int, int]]:
    """Places of the levels q and 1 - q where both are there, the widest interval first.

    Args:
        levels: ascending.
    """
    return [
        (low, high)
        for low, high in combinations(range(len(levels)), 2)
        if math.isclose(levels[low] + levels[high], 1.0, abs_tol=1e-9)
    ]
