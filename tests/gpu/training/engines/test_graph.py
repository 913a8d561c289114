"""Captured engines repeat themselves, draw fresh dropout and give all back. That they compute what
the eager one does is in test_equality.py, and in test_fit.py beside a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.backend_trainings import config_of, losses
from tuner.config import Backend
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.clock import exact_fp32, seeded
from tuner.training.engines.choose import MEASURED_ON, make_engine

CAPTURED = (Backend.GRAPH, Backend.TRITON)


@pytest.mark.parametrize(
    ("model", "hidden_size"), [("original", 64), ("original", 1024), ("batchnorm", 64)]
)
def test_auto_is_captured_on_fused_kernels_where_they_are_faster(
    cuda_data: DeviceData, model: str, hidden_size: int
) -> None:
    result = fit(config_of(model, Backend.AUTO, hidden_size=hidden_size), cuda_data)
    fused = (model, hidden_size) == (
        "original",
        64,
    ) and torch.cuda.get_device_capability() == MEASURED_ON
    assert result.backend is (Backend.TRITON if fused else Backend.GRAPH)
    assert bool(result.backend_fallback) == (
        model == "batchnorm" and torch.cuda.get_device_capability() == MEASURED_ON
    )


@pytest.mark.parametrize("backend", CAPTURED)
def test_replays_draw_fresh_dropout(cuda_data: DeviceData, backend: Backend) -> None:
    """Epochs at a learning rate of nothing differ in nothing but their masks."""
    config = config_of("original", backend, dropout=0.4, learning_rate=1e-30)
    with exact_fp32(), seeded(0, torch.device("cuda")):
        model = build_model(config.architecture, cuda_data.shapes, config.hyperparameters).cuda()
        engine = make_engine(config, cuda_data, model)
        engine.warm_up()
        order = torch.arange(len(cuda_data.train), device="cuda")
        sums = [float(engine.train_epoch(order, 1e-30, lambda: None).loss_sum) for _ in range(4)]
        engine.close()
    assert len(set(sums)) == 4


@pytest.mark.parametrize("backend", CAPTURED)
def test_the_memory_of_many_captured_trainings_does_not_grow(
    cuda_data: DeviceData, backend: Backend
) -> None:
    def train(hidden_size: int) -> None:
        config = config_of("rmsnorm", backend, hidden_size=hidden_size)
        fit(replace(config, training=config.training.but(max_epochs=1)), cuda_data)

    for hidden_size in (32, 64) * 2:
        train(hidden_size)
    before = torch.cuda.memory_reserved()
    for hidden_size in (32, 64) * 3:
        train(hidden_size)
    assert torch.cuda.memory_reserved() == before


@pytest.mark.parametrize("backend", CAPTURED)
def test_captured_trainings_are_the_same_bit_for_bit_every_time(
    cuda_data: DeviceData, backend: Backend
) -> None:
    """Branches run on other streams: memory used again too early would change the result. They are
    the same ones in all variants, of which test_fit.py repeats each once.
    """
    config = config_of("original", backend, dropout=0.2, hidden_size=128)
    first = losses(config, cuda_data)
    assert all(losses(config, cuda_data) == first for _ in range(4))
