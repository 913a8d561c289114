"""neuralforecast's own fit: of TSMixerx, the nearest that library has to the job, and of those of
its models that are variants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from neuralforecast.losses.pytorch import MQLoss
from neuralforecast.models.tsmixerx import TSMixerx
from neuralforecast.tsdataset import TimeSeriesDataset
from pytorch_lightning import Callback
from torch import nn

from tuner.bench.contender import Entry, Job
from tuner.bench.lightning import InLightning, StepTimer, Timer, trainer_arguments
from tuner.config import RunConfig, library_class
from tuner.data.prepare import PreparedData
from tuner.export.best_config import of_class
from tuner.models.of_neuralforecast.build import find_class
from tuner.models.registry import network_arguments

NOTE = "one series only, windows drawn at random, covariates repeated for each column"
OWN_NOTE = "one series only, windows drawn at random"
SETTLE_STEPS = 10
"""Steps before the clock is read."""

CHUNK = 81
"""At most so many steps stand for an epoch; a shorter epoch is taken whole."""

FURTHER_BLOCKS = 1
"""Beside the first, which this library always has: two in all, as in the job."""


class NeuralForecast(InLightning):
    """TSMixerx with the target columns of the job's first series as its panel.

    A multivariate model of this library mixes the series of one panel, so the job's two series
    cannot be trained on together, and there is no static id. Each step draws a full batch of
    windows from all there are: it has no epochs. An epoch is therefore counted as the job's number
    of steps times the time of a step, without validation.
    """

    def __init__(self, job: Job, entry: Entry, config: RunConfig) -> None:
        super().__init__(job, entry, config)
        self._dataset = panel(job.prepared)

    def _trained(self, read: Callable[[], float], epochs: int) -> tuple[Timer, nn.Module]:
        chunk = min(CHUNK, self._n_steps)
        timer = StepTimer(read, settle=SETTLE_STEPS, chunk=chunk, n_steps=self._n_steps)
        model = self._model(timer, max_steps=SETTLE_STEPS + epochs * chunk)
        model.fit(self._dataset)
        return timer, model

    def _train_a_little(self, callback: Callback) -> None:
        self._model(callback, max_steps=3).fit(self._dataset)

    def _model(self, callback: Callback, *, max_steps: int) -> Any:
        h, sizes = self._config.hyperparameters, self._job.prepared.shapes
        return TSMixerx(
            n_series=sizes.n_targets,
            futr_exog_list=_names("future", sizes.n_future),
            hist_exog_list=_names("past", sizes.n_past),
            n_block=FURTHER_BLOCKS,
            ff_dim=h.hidden_size,
            dropout=h.dropout,
            revin=True,
            windows_batch_size=h.batch_size,
            **self._training(callback, max_steps),
        )

    def _training(self, callback: Callback, max_steps: int) -> dict[str, Any]:
        """What all models are given: the job, and how it is trained."""
        h, prepared = self._config.hyperparameters, self._job.prepared
        sizes = prepared.shapes
        return {
            "h": sizes.horizon,
            "input_size": sizes.input_size,
            "loss": MQLoss(quantiles=list(prepared.task.quantiles)),
            "max_steps": max_steps,
            "val_check_steps": max_steps,
            "learning_rate": h.learning_rate,
            "batch_size": sizes.n_targets,
            "training_data_availability_threshold": 1.0,
            "random_seed": self._job.seed,
            "gradient_clip_val": self._config.training.gradient_clip,
            **trainer_arguments(self._job.device, self._job.precision, callback),
        }


class OwnModel(NeuralForecast):
    """A model of the library that is a variant, with the variant's arguments, in its own fit.

    A model that forecasts each target by itself draws as many windows of one target as the
    variant's batch holds; the reversible norm around it is the library's scaling of each window.
    """

    def _model(self, callback: Callback, *, max_steps: int) -> Any:
        name = library_class(self._config.architecture.model)
        assert name is not None, "only such variants come here"
        model_class = find_class(name)
        h, sizes = self._config.hyperparameters, self._job.prepared.shapes
        settings = {**self._config.architecture.settings, **network_arguments(h)}
        given = {"n_series": sizes.n_targets, "windows_batch_size": h.batch_size}
        covariates = {
            "futr_exog_list": _names("future", sizes.n_future * model_class.EXOGENOUS_FUTR),
            "hist_exog_list": _names("past", sizes.n_past * model_class.EXOGENOUS_HIST),
        }
        return model_class(
            **of_class(name, given, settings), **covariates, **self._training(callback, max_steps)
        )


def panel(prepared: PreparedData) -> TimeSeriesDataset:
    """The training rows of the first series: each target a series, with covariates beside it."""
    split, sizes = prepared.train, prepared.shapes
    starts = split.starts[split.series_index == 0]
    rows = slice(int(starts[0]), int(starts[-1]) + prepared.task.window)
    shared = [
        split.future[rows],
        split.past[rows],
        np.ones((rows.stop - rows.start, 1), dtype=np.float32),
    ]
    values = np.concatenate(
        [np.hstack([column[:, None], *shared]) for column in split.targets[rows].T]
    )
    columns = [
        "y",
        *_names("future", sizes.n_future),
        *_names("past", sizes.n_past),
        "available_mask",
    ]
    return TimeSeriesDataset(
        temporal=values,
        temporal_cols=pd.Index(columns),
        indptr=np.arange(sizes.n_targets + 1) * (rows.stop - rows.start),
        y_idx=0,
    )


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in range(count)]
