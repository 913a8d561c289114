"""A task's series as windows on a device: split by time, scaled on the training rows, as the
study's data was.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from tuner.config import ModelShapes
from tuner.data.calendar_features import calendar_columns
from tuner.data.many_files import in_order_of_splits, twins
from tuner.data.prepare import mean_change, window_starts
from tuner.data.series import Series
from tuner.data.split_rows import split_sizes
from tuner.data.wildcards import at_first_wildcard, files_found


class Split(NamedTuple):
    """One split: the rows of all series below each other, and where its windows start."""

    rows: Tensor  # (R, C + P + F): targets, past covariates, future covariates
    starts: Tensor  # (N,): first row of each window
    series: Tensor  # (N,): series of each window
    times: npt.NDArray[np.datetime64]  # (R,)


class Data(NamedTuple):
    """Scaled series on a device. original = scaled * scale[series] + minimum[series]."""

    shapes: ModelShapes
    names: tuple[str, ...]
    train: Split
    val: Split
    test: Split
    static: Tensor | None  # (series, 1): the number of the series
    minimum: Tensor  # (series, C) float64
    scale: Tensor  # (series, C) float64
    change: Tensor  # (series, C) float64: mean absolute change from row to row
    covariate_minimum: Tensor  # (series, P + F without the calendar's) float64
    covariate_scale: Tensor  # the same


class Windows(NamedTuple):
    """A batch of windows, all scaled."""

    past: Tensor  # (B, L, C + P + F)
    future: Tensor | None  # (B, T, F)
    static: Tensor | None  # (B, 1)
    target: Tensor  # (B, T, C)


def gather(data: Data, split: Split, index: Tensor) -> Windows:
    """The windows with these numbers, (B,)."""
    s = data.shapes
    rows = split.starts[index].unsqueeze(1) + torch.arange(
        s.input_size + s.horizon, device=index.device
    )
    past, ahead = split.rows[rows[:, : s.input_size]], split.rows[rows[:, s.input_size :]]
    return Windows(
        past=past,
        future=ahead[..., s.n_targets + s.n_past :] if s.n_future else None,
        static=None if data.static is None else data.static[split.series[index]],
        target=ahead[..., : s.n_targets],
    )


def read_csv(
    path: str | Path,
    columns: Sequence[str],
    *,
    name: str,
    time_column: str,
    id_column: str | None = None,
    separator: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8-sig",
    time_format: str | None = None,
) -> list[Series]:
    """The series of a CSV: one called `name`, or one for each id in the order in which they first
    appear.
    """
    cells = pd.read_csv(path, sep=separator, encoding=encoding, dtype=str, keep_default_na=False)
    cells = cells.rename(columns=str.strip)
    wanted = [*columns, time_column, *([] if id_column is None else [id_column])]
    if missing := [column for column in wanted if column not in cells.columns]:
        raise ValueError(f"has no column {', '.join(missing)}; found {', '.join(cells.columns)}")
    # Python's own float reads every cell: the nearest number, whatever the version of pandas.
    values = (
        cells[list(columns)]
        .map(lambda cell: float(cell.replace(decimal, ".")))
        .to_numpy(np.float64)
    )
    times = pd.to_datetime(
        cells[time_column].str.strip(), format=time_format or "ISO8601", utc=True
    )
    stamps = times.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    if id_column is None:
        return [Series(name=name, timestamps=stamps, values=values)]
    ids = cells[id_column].str.strip().to_numpy()
    return [
        Series(name=str(one), timestamps=stamps[ids == one], values=values[ids == one])
        for one in pd.unique(ids)
    ]


def read_or_leave(
    task: Mapping[str, Any], read_series: Callable[[str | None], list[Series]], data: str | None
) -> list[Series]:
    """The series, each long enough for the task; or the script's end, with one line on what is
    wrong.
    """
    try:
        series = read_series(data)
    except OSError as error:
        sys.exit(
            f"{error.filename or data}: {error.strerror or error}; usage: python {sys.argv[0]} "
            "[DATA]"
        )
    except (
        ValueError
    ) as error:  # of pandas, too: a file that is no table, or a cell that is no number
        sys.exit(f"{data or 'the data'}: {' '.join(str(error).split())}")
    window, dealt = task["input_size"] + task["horizon"], _runs(task) == "by_file"
    if dealt and (same := twins(series)) is not None:
        sys.exit(
            f"{data or 'the data'}: {same[0]} and {same[1]} hold the same values, and one may be "
            "trained on while the other is forecast; leave one of them out"
        )
    for one in series:
        rows = len(one.values)
        if (rows if dealt else min(split_sizes(rows, task["split"]))) < window:
            sys.exit(
                f"{data or 'the data'}: series {one.name} has {rows} rows; each split needs "
                f"{window} of them"
            )
    return series


def read_runs(pattern: str, columns: Sequence[str], **dialect: Any) -> list[Series]:
    """A series of each file that a pattern finds, called as the file from the first wildcard on."""
    root, parts = at_first_wildcard(Path(pattern))
    if not parts:
        raise ValueError("has no wildcard; name all files at once, the pattern in quotes")
    together: list[Series] = []
    for path in files_found(root, parts):
        name = path.relative_to(root).as_posix()
        together += read_csv(path, columns, **(dialect | {"name": name}))
    if not together:
        raise ValueError("the pattern finds no file")
    return sorted(together, key=lambda one: one.name)


def _runs(task: Mapping[str, Any]) -> str | None:
    found: str | None = task.get("source", {}).get("runs")
    return found


def rows_of_splits(
    task: Mapping[str, Any], series: Sequence[Series]
) -> list[tuple[Series, list[int]]]:
    """What is cut into windows as one, and how many of its rows each split has."""
    if _runs(task) != "by_file":
        return [(one, list(split_sizes(len(one.values), task["split"]))) for one in series]
    owners = [
        n for n, size in enumerate(split_sizes(len(series), task["split"])) for _ in range(size)
    ]
    return [
        (one, [len(one.values) if n == owner else 0 for n in range(3)])
        for owner, one in zip(owners, in_order_of_splits(tuple(series)), strict=True)
    ]


def prepare(
    task: Mapping[str, Any],
    series: Sequence[Series],
    device: torch.device,
    input_size: int | None = None,
) -> Data:
    """Split each series by time, or by its files, scale it by the range of its training rows, cut
    windows that cross no split and no file. Of their past, the last `input_size` rows are seen; all
    where None.
    """
    shapes = shapes_of(task, input_size)
    n_targets = shapes.n_targets
    window, unseen = task["input_size"] + shapes.horizon, task["input_size"] - shapes.input_size
    rows: list[list[Any]] = [[], [], []]
    starts: list[list[Any]] = [[], [], []]
    owners: list[list[Any]] = [[], [], []]
    times: list[list[Any]] = [[], [], []]
    pieces = rows_of_splits(task, series)
    train = [one.values[: sizes[0]] for one, sizes in pieces]
    groups = [train] if _runs(task) else [[part] for part in train]
    ranges = [scaling_of(parts, n_targets) for parts in groups]
    for place, (one, sizes) in enumerate(pieces):
        number = 0 if _runs(task) else place
        minimum, scale, _ = ranges[number]
        scaled = np.hstack(
            [(one.values - minimum) / scale, calendar_columns(one.timestamps, task["calendar"])]
        )
        first = 0
        for split, size in enumerate(sizes):
            begin = window_starts(size, window, shapes.horizon if split == 2 else 1)  # noqa: PLR2004 - the test split
            starts[split].append(begin + unseen + sum(len(part) for part in rows[split]))
            owners[split].append(np.full(len(begin), number))
            rows[split].append(scaled[first : first + size].astype(np.float32))
            times[split].append(one.timestamps[first : first + size])
            first += size

    def tensor(parts: Sequence[Any]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device)

    splits = [
        Split(tensor(rows[i]), tensor(starts[i]), tensor(owners[i]), np.concatenate(times[i]))
        for i in range(3)
    ]
    lowest, unit, change = (tensor([each]) for each in map(np.stack, zip(*ranges, strict=True)))
    names = (task["name"],) if _runs(task) else tuple(one.name for one in series)
    static = torch.arange(len(names), dtype=torch.float32, device=device).unsqueeze(1)
    return Data(
        shapes=shapes,
        names=names,
        train=splits[0],
        val=splits[1],
        test=splits[2],
        static=static if task["static_id"] else None,
        minimum=lowest[:, :n_targets],
        scale=unit[:, :n_targets],
        change=change,
        covariate_minimum=lowest[:, n_targets:],
        covariate_scale=unit[:, n_targets:],
    )


def scaling_of(train: Sequence[Any], n_targets: int) -> tuple[Any, Any, Any]:
    """Minimum, range and mean change of the columns of training rows, which may be in parts."""
    together = np.concatenate(train)
    minimum = together.min(axis=0)
    scale = together.max(axis=0) - minimum
    scale = np.where(scale > 0, scale, 1.0)  # a constant column
    return minimum, scale, mean_change(*(part[:, :n_targets] for part in train))


def shapes_of(task: Mapping[str, Any], input_size: int | None) -> ModelShapes:
    """The sizes that the task asks of a network which sees so many rows; all where None."""
    return ModelShapes(
        input_size=input_size or task["input_size"],
        horizon=task["horizon"],
        n_targets=len(task["target_columns"]),
        n_past=len(task["past_covariates"]),
        n_future=len(task["future_covariates"]) + 2 * len(task["calendar"]),
        n_static=int(task["static_id"]),
        n_quantiles=len(task["quantiles"]),
    )


def data_hash(task: Mapping[str, Any], series: Sequence[Series]) -> str:
    """SHA-256 over the task's definition and every series' name, timestamps and values."""
    together = hashlib.sha256(_canonical(task))
    for one in series:
        together.update(_canonical([one.name, *one.values.shape]))
        together.update(one.timestamps.astype("<i8").tobytes())
        together.update(np.ascontiguousarray(one.values, dtype="<f8").tobytes())
    return together.hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
