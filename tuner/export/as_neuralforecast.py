"""A configuration as a neuralforecast model, and as a script that sets one up, trains it and forecasts."""

from __future__ import annotations

import math
from typing import Any

from tuner.export.as_python import comment
from tuner.export.record import BestConfig

CLASSES = {
    "original": "TSMixerOriginal",
    "rmsnorm": "TSMixerRMSNorm",
    "layernorm": "TSMixerLayerNorm",
    "simple": "TSMixerSimple",
    "batchnorm": "TSMixerBatchNorm",
}
"""The classes in `tuner.integrations.neuralforecast`, whose import takes seconds, by variant."""

SCRIPT = """\
{headline}
#
# Needs tuner and neuralforecast. Run:  python THIS_FILE PANEL.csv
# The panel has a row for each series and time: unique_id, ds, y. For exogenous columns name them in futr_exog_list,
# hist_exog_list or stat_exog_list below.
import sys

import pandas as pd
import torch
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MQLoss

{imports}

model = {model}(
{arguments}
    optimizer=torch.optim.AdamW,
    loss=MQLoss(quantiles={quantiles}),
)
# The study scaled each series by the range of its training rows.
nf = NeuralForecast(models=[model], freq={frequency!r}, local_scaler_type="minmax")

if __name__ == "__main__":
    panel = pd.read_csv(sys.argv[1], parse_dates=["ds"])
    nf.fit(panel)
    print(nf.predict().to_string())
"""


def build(config: BestConfig, *, h: int | None = None, n_series: int | None = None, **changes: Any) -> Any:
    """`BestConfig.to_neuralforecast`."""
    import torch
    from neuralforecast.losses.pytorch import MQLoss

    from tuner.integrations.neuralforecast import model_class

    given = arguments(config, h=h, n_series=n_series)
    given |= {"optimizer": torch.optim.AdamW, "loss": MQLoss(quantiles=list(config.definition.task["quantiles"]))}
    if "lr_scheduler_kwargs" in given:
        given["lr_scheduler"] = torch.optim.lr_scheduler.ExponentialLR
    if "loss" in changes:
        given["gradient_clip_val"] = config.training.gradient_clip
    return model_class(config.architecture)(**given | changes)


def arguments(config: BestConfig, *, h: int | None = None, n_series: int | None = None) -> dict[str, Any]:
    """The plain arguments of the model class.

    neuralforecast counts steps where a study counts epochs, and averages its quantile loss over the levels where the
    protocol sums it: the number of steps, the decay of the learning rate and the clipping are converted. It trains
    until the trial's best epoch; set `early_stop_patience_steps` and fit with a `val_size` to stop early instead.
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


def render(config: BestConfig) -> str:
    """The script."""
    given = arguments(config)
    name = config.architecture.model
    if name in CLASSES:
        model = CLASSES[name]
        imports = f"from tuner.integrations.neuralforecast import {model}"
    else:
        settings = dict(config.architecture.settings)
        model = f"model_class(Architecture(model={name!r}, settings={settings!r}))"
        imports = "from tuner import Architecture\nfrom tuner.integrations.neuralforecast import model_class"
    lines = [f"    {key}={value!r}," for key, value in given.items()]
    if "lr_scheduler_kwargs" in given:
        lines.append("    lr_scheduler=torch.optim.lr_scheduler.ExponentialLR,")
    return SCRIPT.format(
        headline=comment(config),
        imports=imports,
        model=model,
        arguments="\n".join(lines),
        quantiles=list(config.definition.task["quantiles"]),
        frequency=config.definition.task["frequency"],
    )
