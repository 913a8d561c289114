"""darts' TSMixerModel at the protocol's settings: its own windows, loader and Lightning trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from darts import TimeSeries
from darts.models import TSMixerModel
from darts.utils.likelihood_models.torch import QuantileRegression
from pytorch_lightning import Callback
from torch import nn

from tuner.bench.contender import Entry, Job
from tuner.bench.lightning import EpochTimer, InLightning, Timer, trainer_arguments
from tuner.config import RunConfig
from tuner.data.prepare import PreparedData, PreparedSplit

N_BLOCKS = 2


class Darts(InLightning):
    """darts as its documentation has it, on our prepared arrays: the same windows and values.

    Its epoch ends with its validation, loss only; nothing keeps its best weights.
    """

    def __init__(self, job: Job, entry: Entry, config: RunConfig) -> None:
        super().__init__(job, entry, config)
        self._train = _fit_arguments(job.prepared, job.prepared.train)
        self._val = {
            f"val_{key}": value
            for key, value in _fit_arguments(job.prepared, job.prepared.val).items()
        }

    def _trained(self, read: Callable[[], float], epochs: int) -> tuple[Timer, nn.Module]:
        timer = EpochTimer(read)
        model = self._model(timer)
        model.fit(**self._train, **self._val, epochs=epochs + 1)
        assert timer.steps == [self._n_steps] * (epochs + 1), (
            f"darts has other batches than ours: {timer.steps}, {self._n_steps}"
        )
        assert isinstance(model.model, nn.Module), "fit builds the network"
        return timer, model.model

    def _train_a_little(self, callback: Callback) -> None:
        self._model(callback, limit_train_batches=2).fit(**self._train, epochs=2)

    def _model(self, callback: Callback, **trainer: Any) -> TSMixerModel:
        h, task = self._config.hyperparameters, self._job.prepared.task
        training = self._config.training
        arguments = trainer_arguments(self._job.device, self._job.precision, callback)
        return TSMixerModel(
            input_chunk_length=task.input_size,
            output_chunk_length=task.horizon,
            hidden_size=h.hidden_size,
            ff_size=h.hidden_size,
            num_blocks=N_BLOCKS,
            dropout=h.dropout,
            norm_type="LayerNorm",
            use_reversible_instance_norm=True,
            likelihood=QuantileRegression(list(task.quantiles)),
            batch_size=h.batch_size,
            optimizer_kwargs={"lr": h.learning_rate},
            lr_scheduler_cls=torch.optim.lr_scheduler.ExponentialLR,
            lr_scheduler_kwargs={"gamma": training.learning_rate_decay},
            random_state=self._job.seed,
            save_checkpoints=False,
            pl_trainer_kwargs={**arguments, "gradient_clip_val": training.gradient_clip, **trainer},
        )


def _fit_arguments(prepared: PreparedData, split: PreparedSplit) -> dict[str, Any]:
    """One series after the other, as `fit` takes them: targets with their static id, covariates."""
    task, sizes = prepared.task, prepared.shapes
    targets: list[TimeSeries] = []
    past: list[TimeSeries] = []
    future: list[TimeSeries] = []
    for number in range(len(prepared.series)):
        rows = rows_of(split, number, task.window)
        static = pd.DataFrame({"series": prepared.static[number]}) if sizes.n_static else None
        targets.append(_series(split.targets[rows], static))
        past.append(_series(split.past[rows], None))
        future.append(_series(split.future[rows], None))
    arguments: dict[str, Any] = {"series": targets}
    if sizes.n_past:
        arguments["past_covariates"] = past
    if sizes.n_future:
        arguments["future_covariates"] = future
    return arguments


def _series(values: np.ndarray[Any, Any], static: pd.DataFrame | None) -> TimeSeries:
    columns = [f"column{number}" for number in range(values.shape[1])]
    return TimeSeries.from_values(
        np.ascontiguousarray(values), columns=columns, static_covariates=static
    )


def rows_of(split: PreparedSplit, series: int, window: int) -> slice:
    """The rows of one series in a split with windows of stride 1."""
    starts = split.starts[split.series_index == series]
    return slice(int(starts[0]), int(starts[-1]) + window)
