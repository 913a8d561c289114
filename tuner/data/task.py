"""A task: which data, which windows, which covariates, which quantiles. `etth`, `demo`, or a TOML
file.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from tuner.config import ModelShapes, MqlSplit, Objective
from tuner.data.source_kinds import (
    DEFAULT_TIME_COLUMN,
    OF_FILES,
    CsvSource,
    DemoSource,
    EtthSource,
    FileSource,
    Frozen,
    Name,
    Source,
    listed,
)
from tuner.errors import DataError, UsageError, guess, unknown_name
from tuner.files.plain import Prose, excerpt
from tuner.files.toml_file import TomlDocument, read_toml, validate

if TYPE_CHECKING:
    from tuner.data.dialect import Floats

# Where the targets of a task are: a small CSV that a task file names, read and checked.


LARGEST = 1e9
"""Of a coordinate, in any unit."""
EARTH_KM = 6371.0088
"""The mean radius."""
DIGITS = 6
"""Decimals of kilometres, so that the last bits of one machine's cosine do not change the hash."""

NAME, PLANE, GLOBE = "series", ("x", "y"), ("lat", "lon")
HEADER = "a header with the columns series,x,y or series,lat,lon is expected"
_BOUNDS = {"lat": 90.0, "lon": 180.0}

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
        raise UsageError(f"{where}: the path of a file is expected, such as 'positions.csv'")
    if long:
        raise UsageError(
            f"{where}: says where target columns are, and here the series stand below each other "
            "(id_column); write a wide file, with a column for each detector"
        )
    return read_positions((document.path.parent / named).absolute(), targets)


def read_positions(path: Path, targets: Sequence[str]) -> tuple[Position, ...]:
    """The places of `targets`, in their order. Lines of others are not looked at.

    Raises:
        DataError: one line that names the file and the row or the target, and the remedy.
    """
    from tuner.data.dialect import as_numbers, plain
    from tuner.data.open_file import is_parquet, open_csv, open_hdf5, open_parquet, read_bytes

    content = read_bytes(path, remedy="correct 'positions' in the task file, relative to it")
    if path.suffix.lower() in (".h5", ".hdf5"):
        file = open_hdf5(content, path)
    elif is_parquet(content, path):
        file = open_parquet(content, path)
    else:
        file = open_csv(content, CsvSource(kind="csv", path=path))
    there = [axes for axes in (PLANE, GLOBE) if set(axes) <= set(file.names)]
    if NAME not in file.names or len(there) != 1:
        raise DataError(f"{file.head}: {HEADER}, there is {', '.join(map(excerpt, file.names))}")
    columns = dict(file.columns([NAME, *there[0]], [NAME, *there[0]]))
    names = plain(columns[NAME]).tolist()
    counts, place_of = Counter(names), {name: at for at, name in enumerate(names)}
    for target in targets:
        if counts[target] != 1:
            found = "is there twice" if target in names else f"is missing{guess(target, names)}"
            raise DataError(f"{path}: target {excerpt(target)!r} {found}; have one row for each")
    rows = [place_of[target] for target in targets]
    places = []
    for axis in there[0]:
        cells, bound = columns[axis].iloc[rows], _BOUNDS.get(axis, LARGEST)
        numbers, bad = as_numbers(cells)
        for at, number in enumerate(numbers):
            if at == bad or not abs(number) <= bound:
                raise DataError(
                    f"{path}, row {file.rows[rows[at]]}, column {axis!r}: a number from {-bound:g} "
                    f"to {bound:g} is expected, got {excerpt(plain(cells).iloc[at])!r}"
                )
        places.append(numbers)
    if there[0] == GLOBE:
        places = _on_a_plane(*places)
    points = zip(targets, *(axis.tolist() for axis in places), strict=True)
    return tuple(Position(series=target, x=x, y=y) for target, x, y in points)


def _on_a_plane(lat: Floats, lon: Floats) -> list[Floats]:
    """Degrees as kilometres east and north of the first place, each (T,).

    Equirectangular, about the mean latitude: within a region, a thousandth is the error.
    """
    per_degree = math.radians(EARTH_KM)
    east = (lon - lon[0] + 180) % 360 - 180  # the short way round
    x = per_degree * math.cos(math.radians(float(lat.mean()))) * east
    return [x.round(DIGITS), (per_degree * (lat - lat[0])).round(DIGITS)]


# What keys of a task are checked for, beyond their types.


BuiltIn = EtthSource | DemoSource


def _problem_of_frequency(value: str, source: Source | None) -> str | None:
    """Why this is no alias of pandas, or none for this source; None where it is."""
    if isinstance(source, BuiltIn) and value != "h":
        return f"this source is hourly: 'h' is expected, got {value!r}"
    local = isinstance(source, FileSource) and source.timezone is not None
    if value in {"h", "min"} or (value == "D" and not local):
        return None  # the usual ones, without importing pandas
    from tuner.data.calendars import frequency_problem, within_a_day

    problem = frequency_problem(value)
    if problem is None and local and not within_a_day(value):
        return (
            f"source.timezone is for steps shorter than a day, got {value!r}: days have no "
            "daylight saving; leave timezone out"
        )
    return problem


def named_twice(names: Sequence[str], taken: Sequence[str] = ()) -> str | None:
    """What to say where one of the names is there twice, or among `taken`; None where none is."""
    twice = (name for at, name in enumerate(names) if name in names[:at] or name in taken)
    name = next(twice, None)
    return None if name is None else f"{name!r} is named twice; name each column once"


def _ascend(levels: Sequence[float]) -> bool:
    return all(low < high for low, high in pairwise(levels))


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


class Bound(Frozen):
    """What a target never is below, or above: forecasts are not, either."""

    column: Name
    low: float | None = None
    high: float | None = None


class Task(Frozen):
    """What is to be forecast, and how it is measured.

    A row of data is one timestamp. `split` are the fractions of each series' rows, in time order,
    for training, validation and test. `past_covariates` are columns known only up to now,
    `future_covariates` columns known over the horizon too; `calendar` adds a sine and a cosine per
    cycle to the latter. `static_id` gives the model the series' number (0, 1, ...) as its one
    static covariate. `objective_series` names the series whose test MQL is the objective; None
    means the mean over all series. `objective` says in which units columns are averaged.
    `positions` are the places of the targets, in their order; a task file has the path of a CSV,
    Parquet or HDF5 file. `bounds` are what targets never leave.
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
    bounds: tuple[Bound, ...] = Field(default=(), max_length=MOST_COLUMNS)

    @field_validator("eval_quantiles")
    @classmethod
    def _usual_levels(cls, value: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        trained = info.data.get("quantiles", ())
        if value:
            return value
        return PROTOCOL_EVAL_QUANTILES if set(PROTOCOL_EVAL_QUANTILES) <= set(trained) else trained

    @classmethod
    def problem(cls, key: str, value: Any, before: Mapping[str, Any]) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one each
        """As of its parent."""
        source, trained = before.get("source"), before.get("quantiles")
        undated = isinstance(source, FileSource) and source.index and source.start is None
        match key:
            case "frequency":
                return _problem_of_frequency(value, source)
            case "split" if not all(0 < part < 1 for part in value) or abs(sum(value) - 1) > 1e-6:  # noqa: PLR2004
                return f"three fractions above 0 that add up to 1 are needed, got {list(value)}"
            case "calendar" if value and undated:
                return (
                    "index = true: the rows have no dates; leave calendar empty, or date the first "
                    "row with start = '1990-01-01' under [source]"
                )
            case "calendar":
                return named_twice(value)
            case "past_covariates" | "future_covariates" if value and isinstance(source, BuiltIn):
                return f"the source {source.kind!r} has no covariate columns; leave it empty"
            case "target_columns" | "past_covariates" | "future_covariates":
                times, ids = (getattr(source, each, None) for each in ("time_column", "id_column"))
                others = [before.get(each, ()) for each in ("target_columns", "past_covariates")]
                return named_twice(value, [*listed(times), *listed(ids), *chain(*others)])
            case "quantiles" if not _ascend(value) or not all(0 < level < 1 for level in value):
                return f"ascending levels between 0 and 1 are needed, got {list(value)}"
            case "eval_quantiles" if value and trained is not None:
                stray = [level for level in value if level not in trained]
                if stray or not _ascend(value):
                    return f"ascending levels from quantiles are needed, got {stray or list(value)}"
            case "bounds":
                columns = [each.column for each in value]
                stray = [c for c in columns if c not in before.get("target_columns", ())]
                if stray:
                    return f"bounds are of target columns, {stray[0]!r} is none"
                ends = [(each.low, each.high) for each in value]
                if any(e == (None, None) or (None not in e and e[0] >= e[1]) for e in ends):
                    return "a 'low' below a 'high' is needed, or one of the two"
                return named_twice(columns)
            case "positions" if value:
                if tuple(each.series for each in value) != before.get("target_columns", ()):
                    return "a place for each target column is expected, in the columns' order"
        return None

    @property
    def columns(self) -> tuple[Name, ...]:
        """Targets, past covariates, future covariates: those of a file that are used for values."""
        return (*self.target_columns, *self.past_covariates, *self.future_covariates)

    @property
    def file(self) -> FileSource:
        """How its rows stand in a table: as in its own file; those of built-in data with a column
        that names their series.
        """
        if isinstance(self.source, FileSource):
            return self.source
        times = "date" if isinstance(self.source, EtthSource) else DEFAULT_TIME_COLUMN
        return FileSource(path=Path(self.name), time_column=times, id_column=NAME)

    @property
    def window(self) -> int:
        """Rows of one window: input and horizon."""
        return self.input_size + self.horizon

    @property
    def usual_split(self) -> MqlSplit:
        """Whose MQL is minimised where nobody says: the test split's in the reference job, whose
        team had it so, and in the demonstration; the validation split's of data of one's own.
        """
        return MqlSplit.TEST if isinstance(self.source, BuiltIn) else MqlSplit.VAL

    @property
    def eval_index(self) -> tuple[int, ...]:
        """Position of each evaluated level among the trained ones."""
        return tuple(self.quantiles.index(level) for level in self.eval_quantiles)

    @property
    def limits(self) -> tuple[list[float], list[float]]:
        """What each target is never below, and never above."""
        lows = {each.column: each.low for each in self.bounds if each.low is not None}
        highs = {each.column: each.high for each in self.bounds if each.high is not None}
        names = self.target_columns
        return [lows.get(n, -math.inf) for n in names], [highs.get(n, math.inf) for n in names]

    def definition(self) -> dict[str, Any]:
        """What makes this task this task, as plain JSON-able data.

        Left out: the description, and where and in what dialect the file is written. The identity
        of the data is the hash of its content (`PreparedData.data_hash`).
        """
        usual = {"objective": Objective.MQL, "positions": (), "bounds": ()}  # not always said
        left_out = {key for key, value in usual.items() if getattr(self, key) == value}
        plain = self.model_dump(mode="json", exclude={"description", *left_out})
        if isinstance(self.source, FileSource):
            plain["source"] = self.source.what_it_holds()
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


BUILT_IN = ("demo", "etth")
"""Their task files lie beside this module."""


def load_task(name_or_path: str) -> Task:
    """A built-in task by name, or a task file: anything that ends in `.toml` or contains a slash.

    Raises:
        UsageError: unknown name, or a task file that is missing or wrong (file, line and key are
            named).
    """
    if (path := task_file(name_or_path)) is not None:
        return _load_file(path)
    if name_or_path not in BUILT_IN:
        raise unknown_name(
            "task", name_or_path, BUILT_IN, more="; or the path of a task file ending in .toml"
        )
    text = Path(__file__).with_name(f"{name_or_path}.toml").read_text(encoding="utf-8")
    return Task.model_validate(tomllib.loads(text))


def task_file(name_or_path: str) -> Path | None:
    """The task file that is named; None where a built-in task is."""
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path).expanduser()
    return None


def _load_file(path: Path) -> Task:
    document = read_toml(path)
    named = {key: value for key, value in document.data.items() if key != "positions"}
    task = validate(replace(document, data=named), Task)
    if task.name in BUILT_IN:
        where = f"{document.where(('name',))}: key 'name'"
        raise UsageError(f"{where}: {task.name!r} is a built-in task; choose another name")
    long = isinstance(task.source, FileSource) and task.source.id_column is not None
    places = positions_of(document, task.target_columns, long=long)
    task = task.model_copy(update={"positions": places})
    if isinstance(task.source, FileSource):
        task = task.model_copy(update={"source": task.source.placed_in(path.parent)})
    return task
