"""Every variant as a neuralforecast model: the same network, in `NeuralForecast(models=[...])`.

A panel's series are the network's target columns. Importing this module makes the classes known to
`NeuralForecast.save` and `NeuralForecast.load`; a process that loads a saved one imports it first.

Legend: B windows, L input hours, h horizon, N series, X historic, F future and S static columns, Q
    outputs a value.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from neuralforecast.common._base_model import BaseModel
from neuralforecast.core import MODEL_FILENAME_DICT
from neuralforecast.losses.pytorch import MAE, DistributionLoss, HuberMQLoss, MQLoss
from torch import Tensor

from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.errors import UsageError
from tuner.models.names import TIME_LLM, social_names
from tuner.models.registry import build_model
from tuner.training.quantile_loss import rearranged

BASE_ARGUMENTS = frozenset(inspect.signature(BaseModel).parameters) - {"trainer_kwargs"}


class TunerModel(BaseModel):  # type: ignore[misc]
    """A variant's network as a multivariate neuralforecast model; the classes below say which.

    Args:
        h: horizon.
        input_size: rows the network sees.
        n_series: series of the panel.
        hidden_size: features inside the network; None for a class that takes none, as `dropout`.
        n_blocks: mixer blocks.
        feed_forward_size: width inside a feature mixing; None means `hidden_size`.
        dropout: probability of every dropout.
        windows_batch_size: windows of a step, which the studies call `batch_size`; `batch_size`
            counts series here.
        scaler_type: neuralforecast's scaling of every window. None means `identity` for losses
            whose outputs have the units of the series, since the network itself takes a window's
            level and spread out and puts them back, and `standard` for losses whose outputs are the
            parameters of a distribution.

    The others are neuralforecast's own, as in its `TSMixerx`. Forecast quantiles are sorted along
    their levels, so they never cross.

    Raises:
        UsageError: sizes that no network can have, or a class of one's own that cannot be built.

    Source: the network is `tuner.models.tsmixer`'s (Chen et al., 2023), as the study trained it.
    """

    EXOGENOUS_FUTR = True
    EXOGENOUS_HIST = True
    EXOGENOUS_STAT = True
    EXOGENOUS_CAT = True
    MULTIVARIATE = True
    RECURRENT = False
    architecture: ClassVar[Architecture]

    def __init__(
        self,
        h: int,
        input_size: int,
        n_series: int,
        futr_exog_list: list[str] | None = None,
        hist_exog_list: list[str] | None = None,
        stat_exog_list: list[str] | None = None,
        cat_exog_list: list[str] | None = None,
        categorical_cardinalities: dict[str, int] | None = None,
        cat_emb_dim: str | int = "fastai",
        exclude_insample_y: bool = False,
        hidden_size: int | None = 64,
        n_blocks: int = 2,
        feed_forward_size: int | None = None,
        dropout: float | None = 0.1,
        loss: Any = None,
        valid_loss: Any = None,
        max_steps: int = 1000,
        learning_rate: float = 1e-4,
        num_lr_decays: int = -1,
        early_stop_patience_steps: int = -1,
        val_monitor: str = "ptl/val_loss",
        val_check_steps: int = 100,
        batch_size: int = 32,
        valid_batch_size: int | None = None,
        windows_batch_size: int = 256,
        inference_windows_batch_size: int = 256,
        start_padding_enabled: bool = False,
        training_data_availability_threshold: float | list[float] = 0.0,
        step_size: int = 1,
        scaler_type: str | None = None,
        random_seed: int = 1,
        drop_last_loader: bool = False,
        alias: str | None = None,
        optimizer: Any = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        lr_scheduler: Any = None,
        lr_scheduler_kwargs: dict[str, Any] | None = None,
        dataloader_kwargs: dict[str, Any] | None = None,
        **trainer_kwargs: Any,
    ) -> None:
        loss = MAE() if loss is None else loss
        # All that the base class takes goes to it as it came, but for the scaling of windows.
        passed = {name: value for name, value in locals().items() if name in BASE_ARGUMENTS}
        passed["scaler_type"] = scaler_type or _scaling_for(loss)
        super().__init__(**passed, **trainer_kwargs)
        settings = self.settings(n_blocks=n_blocks, feed_forward_size=feed_forward_size)
        self.network = build_model(
            Architecture(model=self.architecture.model, settings=settings),
            self._shapes(),
            Hyperparameters(
                hidden_size=hidden_size,
                dropout=dropout,
                learning_rate=learning_rate,  # no network reads it, nor what follows
                weight_decay=0.0,
                batch_size=windows_batch_size,
            ),
        )
        self._by_parameter = _lies_by_parameter(self.loss)

    def _shapes(self) -> ModelShapes:
        return ModelShapes(
            input_size=self.input_size,  # the base class has its own idea of one below 1
            horizon=self.h,
            n_targets=self.n_series,
            n_past=self.n_series * self.hist_exog_size,
            n_future=self.n_series * self.futr_exog_size,
            n_static=self.n_series * self.stat_exog_size,
            n_quantiles=self.loss.outputsize_multiplier,
        )

    @classmethod
    def settings(cls, *, n_blocks: int, feed_forward_size: int | None) -> dict[str, Any]:
        """The network's fixed settings: arguments, or what comes with the user's own class."""
        if ":" in cls.architecture.model:
            return dict(cls.architecture.settings)
        return {"n_blocks": n_blocks} | (
            {} if feed_forward_size is None else {"feed_forward_size": feed_forward_size}
        )

    def forward(self, windows_batch: dict[str, Any]) -> Tensor:
        """One batch as neuralforecast has it -> (B, h, N * Q).

        `insample_y` is (B, L, N), `hist_exog` (B, X, L, N), `futr_exog` (B, F, L + h, N),
        `stat_exog` (N, S).
        """
        y = windows_batch["insample_y"]
        n_windows, length = y.shape[:2]
        past, future, static = [y], None, None
        if self.hist_exog_size > 0:
            past.append(_columns(windows_batch["hist_exog"]))
        if self.futr_exog_size > 0:
            known = _columns(windows_batch["futr_exog"])
            past.append(known[:, :length])
            future = known[:, length:]
        if self.stat_exog_size > 0:
            static = windows_batch["stat_exog"].reshape(1, -1).expand(n_windows, -1)
        forecast = self.network(torch.cat(past, dim=-1), future, static)  # (B, h, N, Q)
        if self._by_parameter:
            forecast = forecast.transpose(2, 3)
        flat: Tensor = forecast.reshape(n_windows, forecast.shape[1], -1)
        return flat

    def _predict_step_direct_batch(self, **given: Any) -> Tensor:
        """Where neuralforecast makes every forecast, (B, h, N, Q): the values of a quantile loss
        are sorted along its levels. Training and validation see them as the network gives them.
        """
        forecast: Tensor = super()._predict_step_direct_batch(**given)
        if not isinstance(self.loss, MQLoss | HuberMQLoss) or self.loss.quantiles.numel() == 1:
            return forecast
        places = self.loss.quantiles.argsort()  # `MQLoss(level=...)` has the median first
        ordered = torch.empty_like(forecast)
        ordered[..., places] = rearranged(forecast)
        return ordered


def _scaling_for(loss: Any) -> str:
    return "standard" if loss.is_distribution_output else "identity"


def _lies_by_parameter(loss: Any) -> bool:
    """What `torch.tensor_split` takes apart later lies parameter by parameter, else by series."""
    return isinstance(loss, DistributionLoss) and loss.distribution != "ISQF"


def _columns(exogenous: Tensor) -> Tensor:
    """(B, K, time, N) -> (B, time, K * N): each series brings columns of its own."""
    return exogenous.transpose(1, 2).flatten(2)


class TSMixerOriginal(TunerModel):
    """Variant `original`."""

    architecture = Architecture(model="original")


class TSMixerRMSNorm(TunerModel):
    """Variant `rmsnorm`."""

    architecture = Architecture(model="rmsnorm")


class TSMixerLayerNorm(TunerModel):
    """Variant `layernorm`."""

    architecture = Architecture(model="layernorm")


class TSMixerSimple(TunerModel):
    """Variant `simple`."""

    architecture = Architecture(model="simple")


class TSMixerBatchNorm(TunerModel):
    """Variant `batchnorm`."""

    architecture = Architecture(model="batchnorm")


MODELS: dict[str, type[TunerModel]] = {
    each.architecture.model: each
    for each in (TSMixerOriginal, TSMixerRMSNorm, TSMixerLayerNorm, TSMixerSimple, TSMixerBatchNorm)
}
"""The classes that have a name to import them by, of built-in variants."""

# neuralforecast finds the class of a saved model in this table of its own, and nowhere else.
MODEL_FILENAME_DICT.update({each.__name__.lower(): each for each in MODELS.values()})


def model_class(architecture: Architecture) -> type[TunerModel]:
    """The class for a network: of `MODELS`, or made for another one, as for a user's own class.

    One that is made is known to `NeuralForecast.load` only in processes that called this: a saved
    model never says which file to import.
    """
    if architecture.model in social_names():
        raise UsageError(
            f"variant {architecture.model!r} needs positions, which neuralforecast does not hand "
            "over; use tuner train"
        )
    if architecture.model == TIME_LLM:
        raise UsageError(f"{TIME_LLM} has no form for neuralforecast yet; use tuner train")
    if architecture.model in MODELS:
        return MODELS[architecture.model]
    name = f"Tuner{architecture.model.rpartition(':')[2]}"
    made = type(name, (TunerModel,), {"architecture": architecture, "__module__": __name__})
    MODEL_FILENAME_DICT[name.lower()] = made
    return made


# neuralforecast's quantile loss for the classes whose forecasts it reads in the wrong order.


class QuantilesFirstMQLoss(MQLoss):  # type: ignore[misc]
    """`MQLoss` of forecasts that hold one quantile of all series, then the next."""

    def domain_map(self, y_hat: Tensor) -> Tensor:
        """(B, h, Q * N) to (B, h, N, Q)."""
        quantiles = self.outputsize_multiplier
        return y_hat.reshape(*y_hat.shape[:2], quantiles, -1).transpose(-1, -2)
