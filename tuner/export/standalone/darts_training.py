"""A configuration in darts: its TSMixerModel set up like the study, a network that drops in,
training and scores.

Beside torch, pandas and numpy these parts of a script need darts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
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
from tuner.data.series import Series
from tuner.export.standalone.forecast_file import check_new, write_forecasts
from tuner.export.standalone.script_step import Job
from tuner.export.standalone.training import copy_of, forecast, score
from tuner.export.standalone.windows_of_series import Data, Split, data_hash, prepare, read_or_leave
from tuner.models.darts_interface import DartsNetwork


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
        del (
            output_dim,
            ff_size,
            num_blocks,
            activation,
            norm_type,
            normalize_before,
        )  # the network's own affair
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
            self.lowest, self.best = loss, copy_of(pl_module)

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
    sizes = {
        "hidden_size": job.hidden_size,
        "ff_size": job.hidden_size,
        "dropout": job.dropout,
    }
    given: dict[str, Any] = {
        **{name: size for name, size in sizes.items() if size is not None},
        "input_chunk_length": job.input_size or task["input_size"],
        "output_chunk_length": task["horizon"],
        "use_reversible_instance_norm": not own_norm,
        "likelihood": QuantileRegression(list(task["quantiles"])),
        "batch_size": job.batch_size,
        "n_epochs": job.max_epochs,
        "optimizer_cls": torch.optim.AdamW,
        "optimizer_kwargs": {"lr": job.learning_rate, "weight_decay": job.weight_decay},
        "lr_scheduler_cls": torch.optim.lr_scheduler.ExponentialLR,
        "lr_scheduler_kwargs": {"gamma": job.learning_rate_decay},
        "random_state": job.seeds[0] % 2**31,
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


def run_darts(
    job: Job, read_series: Callable[[str | None], list[Series]], make: Callable[[], TSMixerModel]
) -> None:
    """Train the model on the task's data and print its scores."""
    parser = argparse.ArgumentParser(
        description="Train one configuration with darts and print its test MQL."
    )
    parser.add_argument(
        "data", nargs="?", help="the task's CSV, or the folder with ETTh1.csv and ETTh2.csv"
    )
    parser.add_argument(
        "--forecasts", type=Path, metavar="FILE.csv", help="write the test split's forecasts here"
    )
    arguments = parser.parse_args()
    check_new(arguments.forecasts)
    series = read_or_leave(job.task, read_series, arguments.data)
    if data_hash(job.task, series) != job.data_hash:
        print("WARNING: this is not the data that the configuration was found on")  # noqa: T201
    data = prepare(job.task, series, torch.device("cpu"), job.input_size)
    model = make()
    train = as_time_series(data, data.train)
    model.fit(
        **train, **{f"val_{name}": value for name, value in as_time_series(data, data.val).items()}
    )
    for name, mql in darts_scores(job, data, model).items():
        print(f"{name}: test MQL {mql:.6f} after {model.epochs_trained} epochs")  # noqa: T201
    if arguments.forecasts is not None:
        forecasts = {job.seeds[0]: darts_forecasts(data, model)}
        write_forecasts(arguments.forecasts, job.task, data, forecasts)


def as_time_series(data: Data, split: Split) -> dict[str, Any]:
    """The rows of a split with windows of stride 1 as the arguments of `fit`."""
    s = data.shapes
    window = s.input_size + s.horizon
    columns: dict[str, list[TimeSeries]] = {
        "series": [],
        "past_covariates": [],
        "future_covariates": [],
    }
    for number in range(len(data.names)):
        starts = split.starts[split.series == number]
        rows = split.rows[int(starts[0]) : int(starts[-1]) + window].numpy()
        static = (
            None if data.static is None else pd.DataFrame({"series": data.static[number].numpy()})
        )
        parts = np.split(rows, [s.n_targets, s.n_targets + s.n_past], axis=1)
        for (name, found), values in zip(columns.items(), parts, strict=True):
            if values.shape[1]:
                made = TimeSeries.from_values(
                    values, static_covariates=static if name == "series" else None
                )
                found.append(made)
    return {name: found for name, found in columns.items() if found}


def darts_scores(job: Job, data: Data, model: TSMixerModel) -> dict[str, float]:
    """Test MQL in original units, by series."""
    with network_of(model, data) as network:
        return score(job, data, data.test, network).by_series


def darts_forecasts(data: Data, model: TSMixerModel) -> Tensor:
    """The test split's forecasts in original units, (N, T, C, Q), whose quantiles never cross."""
    with network_of(model, data) as network:
        return forecast(data, data.test, network)


@contextmanager
def network_of(model: TSMixerModel, data: Data) -> Iterator[DartsNetwork]:
    """The trained module, called as the study's networks are."""
    module = model.model
    normed = module.use_reversible_instance_norm
    try:
        yield DartsNetwork(module.cpu().float().eval(), data.shapes)
    finally:
        module.use_reversible_instance_norm = normed
