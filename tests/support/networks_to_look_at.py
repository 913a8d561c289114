"""Networks of one linear layer, and what belongs to a look at one: for tests of the inspection."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuner.config import Architecture, Hyperparameters, ModelShapes, RunConfig
from tuner.data.windows import Batch, DeviceData
from tuner.training.step import Step


class Linear(nn.Module):
    """Forecasts of each target from its own past, the calendar and the static covariates."""

    def __init__(self, shapes: ModelShapes) -> None:
        super().__init__()
        self.shapes = shapes
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)
        self.calendar = nn.Linear(shapes.n_future, 1)
        self.static = nn.Linear(shapes.n_static, 1)

    def forward(self, past: Tensor, future: Tensor, static: Tensor) -> Tensor:
        s = self.shapes
        out = self.layer(past[..., : s.n_targets].transpose(1, 2))
        out = out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
        shift = self.calendar(future).unsqueeze(-1) + self.static(static)[:, None, None]
        forecast: Tensor = out + shift
        return forecast


def step_of(model: nn.Module, data: DeviceData) -> Step:
    sizes = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=16
    )
    config = RunConfig(architecture=Architecture(model="mine:Mine"), hyperparameters=sizes)
    return Step(config, data, model)


def batch_of(data: DeviceData) -> Batch:
    return data.train.gather(torch.arange(16))
