"""Networks, configurations and devices that a backend is chosen for."""

from __future__ import annotations

import torch
from torch import nn

from tuner.config import (
    Architecture,
    Backend,
    Hyperparameters,
    ModelShapes,
    Precision,
    RunConfig,
    TrainingSettings,
)
from tuner.models.tsmixer import DESIGNS, TSMixer

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
SHAPES = ModelShapes(
    input_size=24, horizon=6, n_targets=2, n_past=0, n_future=2, n_static=1, n_quantiles=5
)


def network(name: str, hidden_size: int = 32) -> nn.Module:
    """Without values, which take a second to draw at some sizes: none chooses by them."""
    with torch.device("meta"):
        return TSMixer(SHAPES, DESIGNS[name], hidden_size=hidden_size, dropout=0.1)


def config_of(
    backend: Backend,
    precision: Precision = Precision.FP32,
    hidden_size: int = 32,
    batch_size: int = 256,
) -> RunConfig:
    return RunConfig(
        architecture=Architecture(model="original"),
        hyperparameters=Hyperparameters(
            learning_rate=1e-4,
            weight_decay=0.0,
            dropout=0.1,
            hidden_size=hidden_size,
            batch_size=batch_size,
        ),
        training=TrainingSettings(backend=backend, precision=precision),
    )


def triton(precision: Precision = Precision.FP32) -> RunConfig:
    return config_of(Backend.TRITON, precision)
