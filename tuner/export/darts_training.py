"""A configuration in darts: its TSMixerModel set up like the study, a network that drops in,
training on CSVs, and scores.

These definitions are copied into a script, which needs darts and nothing of this package.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from darts import TimeSeries
from darts.models import TSMixerModel
from darts.models.forecasting.pl_forecasting_module import PLForecastingModule
from darts.utils.data.torch_datasets.utils import PLModuleOutput
from darts.utils.likelihood_models.torch import QuantileRegression
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import EarlyStopping
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.data.series import Series, calendar_columns
from tuner.data.splits import split_sizes
from tuner.training.quantile_loss import mean_quantile_loss


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is forecast, and how the network is trained."""

    task: Mapping[str, Any]
    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    min_delta: float
    gradient_clip: float
    learning_rate_decay: float
    precision: str
    seed: int
    input_size: int
    """Rows that the network sees, at most as many as the task says."""
    dropout: float | None = None
    hidden_size: int | None = None
    accumulate: int = 1
    """Batches that make up one update."""
    validate_every: int = 1
    """Epochs from one validation to the next."""


class NetworkModule(PLForecastingModule):  # type: ignore[misc]
    """A network with the constructor and the forward of darts' TSMixer module. `build` makes the
    network.

    The network normalises its windows itself: the model is set up without darts' reversible norm.
    """

    build: Callable[[ModelShapes, int, float], nn.Module]

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        past_cov_dim: int,
        future_cov_dim: int,
        static_cov_dim: int,
        nr_params: int,
        hidden_size: int,
        ff_size: int,
        num_blocks: int,
        activation: str,
        dropout: float,
        norm_type: Any,
        normalize_before: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # which looks the arguments up, to save them
        # The rest is the network's own affair.
        del output_dim, ff_size, num_blocks, activation, norm_type, normalize_before
        shapes = ModelShapes(
            input_size=self.input_chunk_length,
            horizon=self.output_chunk_length,
            n_targets=input_dim,
            n_past=past_cov_dim,
            n_future=future_cov_dim,
            n_static=static_cov_dim,
            n_quantiles=nr_params,
        )
        self.network = type(self).build(shapes, hidden_size, dropout)

    def forward(self, x_in: Any) -> PLModuleOutput:
        """`x_in` has the window's tensors by name."""
        static = x_in.static_covariates
        static = None if static is None else static.flatten(1)  # (B, 1, S) or (B, C, S)
        return PLModuleOutput(
            prediction=self.network(
                x_in.concatenate_past_features(), x_in.future_covariates, static
            )
        )


class KeepBest(Callback):
    """The weights of the lowest validation loss, put back at the end: darts itself keeps the last
    ones.
    """

    def __init__(self) -> None:
        self.lowest = math.inf
        self.best: dict[str, Tensor] = {}

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        loss = float(trainer.callback_metrics.get("val_loss", math.inf))
        if not trainer.sanity_checking and loss < self.lowest:
            weights = pl_module.state_dict().items()
            self.lowest, self.best = loss, {name: each.clone() for name, each in weights}

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        del trainer
        if self.best:
            pl_module.load_state_dict(self.best)


def make_model(job: Job, *, own_norm: bool, **changes: Any) -> TSMixerModel:
    """Darts' model with the job's hyperparameters and protocol; `own_norm` where the network has a
    reversible norm.
    """
    task = job.task
    # Lightning counts validations where a study counts epochs.
    patience = math.ceil(job.patience / job.validate_every)
    stopping = EarlyStopping("val_loss", patience=patience, min_delta=job.min_delta)
    hidden = job.hidden_size
    sizes = {"hidden_size": hidden, "ff_size": hidden, "dropout": job.dropout}
    given: dict[str, Any] = {
        **{name: size for name, size in sizes.items() if size is not None},
        "input_chunk_length": job.input_size,
        "output_chunk_length": task["horizon"],
        "use_reversible_instance_norm": not own_norm,
        "likelihood": QuantileRegression(list(task["quantiles"])),
        "batch_size": job.batch_size,
        "n_epochs": job.max_epochs,
        "optimizer_cls": torch.optim.AdamW,
        "optimizer_kwargs": {"lr": job.learning_rate, "weight_decay": job.weight_decay},
        "lr_scheduler_cls": torch.optim.lr_scheduler.ExponentialLR,
        "lr_scheduler_kwargs": {"gamma": job.learning_rate_decay},
        "random_state": job.seed % 2**31,
        "pl_trainer_kwargs": {
            "gradient_clip_val": job.gradient_clip,
            "callbacks": [stopping, KeepBest()],
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            **_of_trainer(job),
        },
    }
    return TSMixerModel(**(given | changes))


def _of_trainer(job: Job) -> dict[str, Any]:
    """What the job has of a training beside the protocol's usual settings."""
    found: dict[str, Any] = {}
    if job.accumulate > 1:
        found["accumulate_grad_batches"] = job.accumulate
    if job.validate_every > 1:
        # Lightning does not validate a last epoch that is none of these: at least there is one.
        found["check_val_every_n_epoch"] = min(job.validate_every, job.max_epochs)
    if job.precision in ("bf16", "fp16"):
        found["precision"] = {"bf16": "bf16-mixed", "fp16": "16-mixed"}[job.precision]
    return found


@dataclass
class Part:
    """Of one split: the arguments of `fit`, a series each, scaled."""

    series: list[TimeSeries] = field(default_factory=list)
    past_covariates: list[TimeSeries] = field(default_factory=list)
    future_covariates: list[TimeSeries] = field(default_factory=list)

    def arguments(self, prefix: str = "") -> dict[str, list[TimeSeries]]:
        """Those that there are."""
        return {f"{prefix}{name}": found for name, found in vars(self).items() if found}


def read_csvs(
    paths: Sequence[str],
    columns: Sequence[str],
    *,
    time_column: str,
    id_column: str | None = None,
    time_format: str | None = None,
    **dialect: Any,
) -> list[Series]:
    """A series of each file, or one for each id in it; `dialect` is pandas'."""
    found: list[Series] = []
    for path in paths:
        table = pd.read_csv(path, **dialect).rename(columns=str.strip)
        wanted = [*columns, time_column, *([] if id_column is None else [id_column])]
        if missing := [name for name in wanted if name not in table.columns]:
            raise ValueError(f"{path} has no column {', '.join(missing)}")
        groups = [(Path(path).stem, table)]
        if id_column is not None:
            groups = list(table.groupby(id_column, sort=False))
        for name, rows in groups:
            times = pd.to_datetime(rows[time_column], format=time_format or "ISO8601", utc=True)
            stamps = times.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
            values = rows[list(columns)].to_numpy(np.float64)
            found.append(Series(name=str(name), timestamps=stamps, values=values))
    return found


def parts_of(job: Job, series: Sequence[Series]) -> tuple[list[Part], list[npt.NDArray[Any]]]:
    """Training, validation and test part, each series split by time and scaled by the range of its
    training rows; and (minimum, range) of each series' targets, (2, C).
    """
    task = job.task
    n_targets, n_past = len(task["target_columns"]), len(task["past_covariates"])
    window, unseen = task["input_size"] + task["horizon"], task["input_size"] - job.input_size
    parts, scales = [Part(), Part(), Part()], []
    for number, one in enumerate(series):
        sizes = split_sizes(len(one.values), task["split"])
        if min(sizes) < window:
            raise ValueError(
                f"{one.name} has {len(one.values)} rows; each split needs {window} of them"
            )
        train = one.values[: sizes[0]]
        minimum, scale = train.min(axis=0), train.max(axis=0) - train.min(axis=0)
        scale = np.where(scale > 0, scale, 1.0)  # a constant column
        scales.append(np.stack([minimum, scale])[:, :n_targets])
        calendar = calendar_columns(one.timestamps, task["calendar"])
        scaled = np.hstack([(one.values - minimum) / scale, calendar]).astype(np.float32)
        static = pd.DataFrame({"series": [float(number)]}) if task["static_id"] else None
        for part, rows in zip(parts, np.split(scaled, np.cumsum(sizes)[:2]), strict=True):
            seen = rows[unseen:]
            targets, past, future = np.split(seen, [n_targets, n_targets + n_past], axis=1)
            part.series.append(TimeSeries.from_values(targets, static_covariates=static))
            if past.shape[1]:
                part.past_covariates.append(TimeSeries.from_values(past))
            if future.shape[1]:
                part.future_covariates.append(TimeSeries.from_values(future))
    return parts, scales


def score(
    job: Job, model: TSMixerModel, test: Part, scales: Sequence[npt.NDArray[Any]]
) -> list[float]:
    """The test MQL of each series in the units of its data: a window at each horizon."""
    task = job.task
    horizon, levels = task["horizon"], list(task["quantiles"])
    picked = [levels.index(level) for level in task["eval_quantiles"]]
    found = model.historical_forecasts(
        **test.arguments(),
        forecast_horizon=horizon,
        stride=horizon,
        retrain=False,
        last_points_only=False,
        predict_likelihood_parameters=True,
    )
    scores = []
    for series, forecasts, (minimum, scale) in zip(test.series, found, scales, strict=True):
        flat = np.stack([each.values() for each in forecasts]).astype(np.float64)
        values = flat.reshape(len(flat), horizon, len(scale), len(levels))[..., picked]
        n_rows = len(flat) * horizon
        rows = series.values()[job.input_size : job.input_size + n_rows].astype(np.float64)
        mql = mean_quantile_loss(
            torch.from_numpy(values * scale[:, None] + minimum[:, None]),
            torch.from_numpy((rows * scale + minimum).reshape(len(flat), horizon, -1)),
            torch.tensor(task["eval_quantiles"], dtype=torch.float64),
        )
        scores.append(float(mql))
    return scores


def run_darts(
    job: Job, read_series: Callable[[list[str]], list[Series]], make: Callable[[], TSMixerModel]
) -> None:
    """Train the model on the task's data and print its scores."""
    parser = argparse.ArgumentParser(description="Train with darts and print the test MQL.")
    parser.add_argument("data", nargs="*", metavar="CSV", help="the task's files")
    try:
        series = read_series(parser.parse_args().data)
        (train, val, test), scales = parts_of(job, series)
    except (OSError, ValueError) as error:
        sys.exit(" ".join(str(error).split()))
    model = make()
    model.fit(**train.arguments(), **val.arguments("val_"))
    epochs = model.epochs_trained  # forecasting sets it back
    for one, mql in zip(series, score(job, model, test, scales), strict=True):
        print(f"{one.name}: test MQL {mql:.6f} after {epochs} epochs")  # noqa: T201
