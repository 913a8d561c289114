"""A configuration as a neuralforecast model: the same network, set up to train like the study's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.export.best_config import BestConfig


def build_model(
    config: BestConfig, *, h: int | None = None, n_series: int | None = None, **changes: Any
) -> Any:
    """`BestConfig.to_neuralforecast`."""
    import torch
    from neuralforecast.losses.pytorch import MQLoss

    from tuner.integrations.neuralforecast import model_class

    given = arguments(config, h=h, n_series=n_series)
    given |= {
        "optimizer": torch.optim.AdamW,
        "loss": MQLoss(quantiles=list(config.definition.task["quantiles"])),
    }
    if "lr_scheduler_kwargs" in given:
        given["lr_scheduler"] = torch.optim.lr_scheduler.ExponentialLR
    if "loss" in changes:
        given["gradient_clip_val"] = config.training.gradient_clip
    return model_class(config.architecture)(**given | changes)


def arguments(
    config: BestConfig, *, h: int | None = None, n_series: int | None = None
) -> dict[str, Any]:
    """The plain arguments of the model class.

    neuralforecast counts steps where a study counts epochs, and averages its quantile loss over the
    levels where the protocol sums it: the number of steps, the decay of the learning rate and the
    clipping are converted. It trains until the trial's best epoch; set `early_stop_patience_steps`
    and fit with a `val_size` to stop early instead.
    """
    task, settings = config.definition.task, dict(config.architecture.settings)
    hyperparameters, training = config.hyperparameters, config.training
    given: dict[str, Any] = {
        "h": h or task["horizon"],
        "input_size": task["input_size"],
        "n_series": n_series or len(task["target_columns"]),
        "hidden_size": hyperparameters.hidden_size,
        "dropout": hyperparameters.dropout,
        "learning_rate": hyperparameters.learning_rate,
        "optimizer_kwargs": {"weight_decay": hyperparameters.weight_decay},
        "windows_batch_size": hyperparameters.batch_size,
        "gradient_clip_val": training.gradient_clip / len(task["quantiles"]),
        "random_seed": config.provenance["seeds"][0],
    }
    if ":" not in config.architecture.model:
        given |= settings
    windows = config.provenance["training_windows"]
    if windows:
        steps = math.ceil(windows / hyperparameters.batch_size)
        epochs = config.provenance["best_epoch"] or config.provenance["epochs"] or 1
        given |= {
            "max_steps": steps * epochs,
            "val_check_steps": steps,
            "lr_scheduler_kwargs": {"gamma": training.learning_rate_decay ** (1 / steps)},
        }
    return given
