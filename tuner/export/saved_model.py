"""A trained network on disk: its weights as safetensors, and beside them a card in JSON that says
all about them.

`model.safetensors` has `model.json` beside it. Loading reads numbers and text and executes nothing.
A class of somebody's own is imported from where the card says it was, once it is trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from tuner.config import Architecture, Hyperparameters, LossTerm, names_own_code, shapes_seen
from tuner.data.prepare import PreparedData
from tuner.data.recent_rows import Scaling, id_column, last_windows, step_named, time_column
from tuner.data.source_kinds import FileSource
from tuner.data.task import Task, shapes, task_of
from tuner.data.windows import refuse_absent_device
from tuner.errors import DataError, UsageError
from tuner.files.arguments import PATH, TRUTH, takes_kinds
from tuner.files.durable import open_plain, put
from tuner.files.kinds import LARGEST_FIGURE
from tuner.files.plain import (
    Digest,
    Label,
    Loose,
    PlainTable,
    Text,
    excerpt,
    explained,
    harmless_data,
    read_json,
)
from tuner.models.registry import build_model
from tuner.spec.space import Configuration
from tuner.training.baselines.plain import empty
from tuner.training.calibration import shifted
from tuner.training.ensemble import Ensemble
from tuner.training.quantile_loss import forecast_scaled
from tuner.version import __version__

if TYPE_CHECKING:
    import pandas as pd


# What the card beside a model file has to say before the model is built: every field with its
# type and range.


Figure = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
Row = tuple[Figure, ...]
MOST_MEMBERS, TINY = 200, 1e-6


class CardScaling(Loose):
    """Minimum and range of each column, by series."""

    minimum: tuple[Row, ...]
    scale: tuple[Row, ...]


class CardTraining(Loose):
    """Of its settings, what says which hyperparameter is no network's."""

    loss: LossTerm | None = None


class CardCalibration(Loose):
    """By how much each quantile is shifted, scaled: by step, or of all together; column; level.
    `factors` of each series and column are what that is multiplied by, where the scaling is not
    that of the training whose forecasts were calibrated.
    """

    shift: tuple[tuple[Row, ...], ...]
    factors: tuple[Row, ...] | None = None


class CardMember(Loose):
    """One of the forecasts that are averaged: `seed N`, or a baseline."""

    name: Label
    weight: Annotated[float, Field(gt=0, le=1)]


class Card(Loose):
    """As much of a card as loading reads; the rest says how the training went."""

    format: Literal[1]
    architecture: Architecture
    hyperparameters: Configuration
    shapes: dict[str, int]
    task: PlainTable
    series: tuple[Text, ...] = Field(min_length=1)
    scaling: CardScaling
    weights_sha256: Digest
    training: CardTraining = CardTraining()
    calibration: CardCalibration | None = None
    members: tuple[CardMember, ...] = Field(default=(), max_length=MOST_MEMBERS)
    trained_on: Label | None = None
    dialect: PlainTable = Field(default_factory=dict)
    """How the training's file was written: as tables to forecast are read."""

    def of_task(self) -> Task:
        """Raises ValueError where it describes none."""
        source = self.task.get("source")
        if self.dialect and isinstance(source, dict):
            return task_of({**self.task, "source": {**source, **self.dialect}})
        return task_of(self.task)

    def configuration(self) -> Hyperparameters:
        """As the network is built with it."""
        return self.hyperparameters.hyperparameters(self.training.loss)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        task = self.of_task()
        expected = shapes(task)
        if self.shapes != expected.sizes():
            raise ValueError("shapes are not those of its task")
        columns = len(task.columns)
        for name, rows in (("minimum", self.scaling.minimum), ("scale", self.scaling.scale)):
            if len(rows) != len(self.series) or any(len(row) != columns for row in rows):
                raise ValueError(
                    f"scaling.{name} has not a row for each series and a figure for each column"
                )
        if self.calibration is not None:
            sizes = {(len(step), *map(len, step)) for step in self.calibration.shift}
            each = len(task.target_columns), *(len(task.quantiles) for _ in task.target_columns)
            if sizes != {each} or len(self.calibration.shift) not in (1, task.horizon):
                raise ValueError("calibration.shift has not a figure for each column and level")
            factors = self.calibration.factors
            if factors is not None and [*map(len, factors)] != [each[0]] * len(self.series):
                raise ValueError("calibration.factors has not a figure for each series and column")
        if self.members and abs(sum(each.weight for each in self.members) - 1) > TINY:
            raise ValueError("the weights of members do not add up to 1")
        return self


SEED = "seed "
"""What begins the name of a member that is a network."""
FORMAT = 1
SUFFIX = ".safetensors"
CARD_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedModel:
    """A trained network with the task it forecasts.

    >>> saved = load_model("model.safetensors")
    >>> len(saved.predict(pd.read_csv("rows.csv")))  # a row for each step ahead and target
    18
    """

    model: nn.Module
    card: Mapping[str, Any]
    task: Task
    series: tuple[str, ...]
    scaling: Scaling
    shift: torch.Tensor | None = None
    """What calibration adds to scaled quantiles, (T or 1, C, Q)."""
    factors: torch.Tensor | None = None
    """What that is multiplied by, (S, C), where it was found on another scaling."""
    trained_on: str = ""
    """Which rows it has seen, in a sentence."""

    def predict(
        self, frame: pd.DataFrame, *, start: str | pd.Timestamp | None = None
    ) -> pd.DataFrame:
        """Quantile forecasts of the `horizon` steps after each series' last row with values, in
        original units. Quantiles never cross: each forecast's values are sorted along its levels.
        They are shifted as a calibrated model says, and kept within the task's bounds.

        Args:
            frame: recent rows in the columns of the task's CSV, oldest first, at least `input_size`
                of each series. Rows after the last with target values carry the future covariates,
                where the task has such.
            start: first time to forecast, to see what the network would have said then; targets and
                past covariates from it on are not looked at. An offset is converted to UTC. Of an
                index, the number of a row.

        Returns:
            A row for each series, time and target column; the trained quantile levels as columns
            "0.05", "0.5", ...

        Raises:
            UsageError: series that the network does not know; a `start` that is no time, or not the
                one after a row with values.
            DataError: columns, rows or values that are missing.
        """
        import pandas as pd

        first = None if start is None else step_named(self.task, start)
        windows = last_windows(self.task, self.series, frame, self.scaling, start=first)
        tensors = self.model.state_dict().values()
        device = next((each.device for each in tensors), torch.device("cpu"))
        past, future = (
            torch.from_numpy(array).to(device) for array in (windows.past, windows.future)
        )
        numbers = torch.from_numpy(windows.series).to(device)
        static = numbers.float().unsqueeze(1) if self.task.static_id else None
        self.model.eval()
        with torch.no_grad():
            known = future if future.shape[-1] else None
            forecast = forecast_scaled(self.model, past, known, static, numbers)
        shift = self.shift
        if shift is not None and self.factors is not None:
            shift = shift * self.factors[windows.series][:, None, :, None]
        ordered = shifted(forecast.double().cpu(), shift).numpy()
        n_targets = len(self.task.target_columns)
        minimum, scale = (
            values[windows.series, :n_targets][:, None, :, None]
            for values in (self.scaling.minimum, self.scaling.scale)
        )
        values = ordered * scale + minimum  # (B, T, C, Q); a scale is above 0
        low, high = (np.array(each)[:, None] for each in self.task.limits)
        values = values.clip(low, high)
        n_series, horizon = values.shape[:2]
        labels = {
            id_column(self.task): np.repeat(
                [self.series[i] for i in windows.series], horizon * n_targets
            ),
            time_column(self.task): np.repeat(windows.times.reshape(-1), n_targets),
            "column": np.tile(self.task.target_columns, n_series * horizon),
        }
        levels = {
            str(level): values[..., i].reshape(-1) for i, level in enumerate(self.task.quantiles)
        }
        return pd.DataFrame(labels | levels)


def card_path(path: Path) -> Path:
    """Where the card of a model file lies."""
    return path.with_suffix(".json")


def check_output(path: Path) -> None:
    """Say before a training whether its result can be written to `path`.

    Raises:
        UsageError: another suffix, or a folder that is not there or cannot be written to.
    """
    if path.suffix != SUFFIX:
        raise UsageError(
            f"{path}: expected a file name that ends in {SUFFIX}; the card goes beside it as .json"
        )
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"{path.parent}: is no folder that can be written to; create it or name another"
        )
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file")


def scaling_of(prepared: PreparedData) -> Scaling:
    """Of targets and covariates, as recent rows are scaled."""
    return Scaling(
        minimum=np.hstack([prepared.minimum, prepared.covariate_minimum]),
        scale=np.hstack([prepared.scale, prepared.covariate_scale]),
    )


def describe(
    prepared: PreparedData, architecture: Architecture, hyperparameters: Hyperparameters
) -> dict[str, Any]:
    """What the card says of network and data; whoever trained adds how it went."""
    sizes = shapes_seen(prepared.shapes, hyperparameters)
    task = prepared.task.model_copy(update={"input_size": sizes.input_size})
    scaling = scaling_of(prepared)
    return {
        "format": FORMAT,
        "written_by": f"tuner {__version__}",
        "architecture": {"model": architecture.model, "settings": dict(architecture.settings)},
        "hyperparameters": hyperparameters.as_dict(),
        "shapes": sizes.sizes(),
        "task": task.definition(),
        "dialect": task.source.dialect if isinstance(task.source, FileSource) else {},
        "quantiles": list(prepared.task.quantiles),
        "series": list(prepared.series),
        "scaling": {
            "columns": list(prepared.task.columns),
            "minimum": scaling.minimum.tolist(),
            "scale": scaling.scale.tolist(),
        },
        "data_hash": prepared.data_hash,
        "trained_on": _trained_on(prepared),
    }


def _first(task: Task) -> str:
    return f"the first {100 * task.split[0]:g} %"


def _trained_on(prepared: PreparedData) -> str:
    (rows, of), ends = prepared.training_rows, " to ".join(prepared.training_ends)
    if rows == of:
        return f"all {of:,} rows, {ends}; scores are of the model before that"
    return f"{_first(prepared.task)}, {rows:,} of {of:,} rows, {ends}"


def save_model(path: Path, model: nn.Module, card: Mapping[str, Any]) -> None:
    """Write weights and card, each in one step, the weights first.

    Raises:
        DataError: the disk does not take them.
    """
    # Copies: a network may hold a tensor under two names, and the format takes none twice.
    weights = save(
        {
            name: tensor.detach().cpu().contiguous().clone()
            for name, tensor in model.state_dict().items()
        }
    )
    full = {**card, "weights_sha256": hashlib.sha256(weights).hexdigest()}
    _write(path, weights)
    _write(card_path(path), (json.dumps(full, indent=2, allow_nan=False) + "\n").encode())


@takes_kinds(path=PATH, trust=TRUTH)
def load_model(path: str | Path, *, device: str = "cpu", trust: bool = False) -> SavedModel:
    """The network that `tuner train` wrote, ready to forecast.

    Args:
        path: the .safetensors file; its card is the .json of the same name.
        device: where it is to run.
        trust: let the code of a class run that the card names. Built-in networks need none.

    Raises:
        UsageError: no such file, card or device; a class of somebody's own that nobody said to
            trust, or that is no longer there.
        DataError: a damaged file or card, or ones that do not belong together.

    >>> load_model("model.safetensors").model.training
    False
    """
    refuse_absent_device(device)
    path = Path(path).expanduser()
    if path == card_path(path):
        raise UsageError(
            f"{path}: is where a card lies; name the model beside it, {path.with_suffix(SUFFIX)}"
        )
    weights, text = _read(path), _read(card_path(path), at_most=CARD_BYTES)
    try:
        card = read_json(text)
        version = card.get("format") if isinstance(card, dict) else None
        if version != FORMAT and isinstance(version, int):
            raise DataError(
                f"{card_path(path)}: has format {version}, expected {FORMAT}; use the tuner that "
                "wrote it"
            )
        told = Card.model_validate_json(json.dumps(card), strict=True)
        task = told.of_task()
    except ValueError as error:
        raise DataError(
            f"{card_path(path)}: is no model card of this tuner ({explained(error)})"
        ) from None
    architecture, calibration = told.architecture, told.calibration
    factors = None if calibration is None else calibration.factors
    scaling = Scaling(minimum=np.array(told.scaling.minimum), scale=np.array(told.scaling.scale))
    if hashlib.sha256(weights).hexdigest() != told.weights_sha256:
        raise DataError(
            f"{path}: is not the file that {card_path(path).name} describes; keep the two together"
        )
    if names_own_code(architecture.model) and not trust:
        raise UsageError(
            f"{card_path(path)} names the network {excerpt(architecture.model, at_most=500)}, "
            "whose code would run here; read that file, then say --trust, or "
            "load_model(..., trust=True)"
        )
    try:
        tensors = load(weights)
        model = _empty(told, task, tensors)
        model.load_state_dict(tensors)
    except (RuntimeError, SafetensorError, ValueError) as error:
        raise DataError(
            f"{path}: its weights do not fit {architecture.model} ({str(error).splitlines()[0]})"
        ) from None
    return SavedModel(
        model=model.to(device).eval(),
        card=harmless_data(card),
        task=task,
        series=told.series,
        scaling=scaling,
        shift=None if calibration is None else torch.tensor(calibration.shift).double(),
        factors=None if factors is None else torch.tensor(factors).double(),
        trained_on=told.trained_on or _first(task),
    )


def _empty(card: Card, task: Task, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """The model that the card describes, its weights to be loaded. ValueError where it cannot."""
    members: list[nn.Module] = []
    for place, name in enumerate([each.name for each in card.members] or [SEED]):
        if name.startswith(SEED):
            network = card.architecture, shapes(task), card.configuration()
            members.append(build_model(*network))
            continue
        begin = f"members.{place}."
        mine = {key[len(begin) :]: each for key, each in tensors.items() if key.startswith(begin)}
        members.append(empty(name, mine, task, len(card.series)))
    return Ensemble(members, [m.weight for m in card.members]) if card.members else members[0]


def _read(path: Path, *, at_most: int | None = None) -> bytes:
    try:
        with open_plain(path) as file:
            content = file.read() if at_most is None else file.read(at_most + 1)
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file; 'tuner train' writes a model as two files, NAME{SUFFIX} and "
            "NAME.json"
        ) from None
    except ValueError as error:
        raise UsageError(f"{excerpt(str(path))}: is no name of a file ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if at_most is not None and len(content) > at_most:
        raise DataError(f"{path}: holds more than {at_most >> 20} MiB; no card of a model does")
    return content


def _write(path: Path, content: bytes) -> None:
    try:
        put(path, content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
