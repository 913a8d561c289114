"""Epochs on the fused kernels and on the eager engine, launched the same way."""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training.batching import batches
from tuner.training.engines.eager import EagerEngine
from tuner.training.engines.fused_engine import FusedEngine


def network(config: RunConfig, data: DeviceData) -> TSMixer:
    torch.manual_seed(11)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    assert isinstance(model, TSMixer)
    return model


def order_of(data: DeviceData, seed: int) -> Tensor:
    return torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))


def fused_epoch(engine: FusedEngine, order: Tensor, learning_rate: float) -> tuple[float, float]:
    """What a captured epoch does, launched kernel by kernel: training and validation losses."""
    engine._state.set_learning_rate(learning_rate)
    engine._order.copy_(order)
    engine._begin_epoch()
    engine.model.train()
    for batch in batches(order, engine._batch_size):
        engine._train_batch(len(batch))
    engine.model.eval()
    engine._validate()
    return float(engine._train_loss_sum()), float(engine._validation_loss_sum()) / len(
        engine._data.val
    )


def eager_epoch(engine: EagerEngine, order: Tensor, learning_rate: float) -> tuple[float, float]:
    return float(engine.train_epoch(order, learning_rate, lambda: None).loss_sum), float(
        engine.validation_loss()
    )


def weights(model: torch.nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_near(these: list[Tensor], those: list[Tensor], learning_rate: float) -> None:
    """As much as rounding does to a few steps of Adam, which turns any gradient into a step."""
    for one, other in zip(these, those, strict=True):
        assert float((one - other).abs().max()) < 0.05 * learning_rate
