"""Captured engines compute what the eager one does, with fresh dropout, and give all back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.backend_trainings import config_of, losses
from tuner.config import (
    Backend,
    StopReason,
)
from tuner.data.windows import DeviceData
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.determinism import exact_fp32, seeded
from tuner.training.engines.choose import MEASURED_ON, make_engine

CAPTURED = (Backend.GRAPH, Backend.TRITON)
CASES = [
    (m, b) for m in builtin_names() for b in CAPTURED if (m, b) != ("batchnorm", Backend.TRITON)
]


@pytest.mark.parametrize(("model", "backend"), CASES)
def test_captured_training_follows_the_eager_one(
    cuda_data: DeviceData, model: str, backend: Backend
) -> None:
    eager = losses(config_of(model, Backend.EAGER), cuda_data)
    captured = losses(config_of(model, backend), cuda_data)
    # Ten times the protocol's learning rate, so that last digits grow; test_equality holds them
    # at the protocol's own.
    assert captured == pytest.approx(eager, rel=5e-2 if model == "batchnorm" else 1e-3)


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
def test_the_same_seed_gives_the_same_captured_training_with_dropout(
    cuda_data: DeviceData, backend: Backend
) -> None:
    config = config_of("original", backend, dropout=0.3)
    assert losses(config, cuda_data) == losses(config, cuda_data)
    assert losses(config, cuda_data) != losses(replace(config, seed=4), cuda_data)


@pytest.mark.parametrize("backend", [*CAPTURED, Backend.COMPILE])
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

    for hidden_size in (32, 64, 128) * 2:
        train(hidden_size)
    before = torch.cuda.memory_reserved()
    for hidden_size in (32, 64, 128) * 4:
        train(hidden_size)
    assert torch.cuda.memory_reserved() == before


@pytest.mark.parametrize(("backend", "hidden_size"), [(Backend.GRAPH, 2048), (Backend.TRITON, 256)])
def test_a_captured_training_survives_running_out_of_memory(
    cuda_data: DeviceData, backend: Backend, hidden_size: int
) -> None:
    torch.cuda.empty_cache()
    allowed = 2**29 if backend is Backend.GRAPH else 2**27
    torch.cuda.set_per_process_memory_fraction(
        allowed / torch.cuda.get_device_properties(0).total_memory
    )
    try:
        huge = config_of("original", backend, hidden_size=hidden_size, batch_size=4096)
        assert fit(huge, cuda_data).stopped_by is StopReason.OUT_OF_MEMORY
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    after = losses(config_of("original", backend), cuda_data)
    assert after == pytest.approx(losses(config_of("original", Backend.EAGER), cuda_data), rel=1e-3)


@pytest.mark.parametrize(("model", "backend"), CASES)
def test_captured_trainings_are_the_same_bit_for_bit_every_time(
    cuda_data: DeviceData, model: str, backend: Backend
) -> None:
    """Branches run on other streams: memory used again too early would change the result."""
    config = config_of(model, backend, dropout=0.2, hidden_size=128)
    first = losses(config, cuda_data)
    assert all(losses(config, cuda_data) == first for _ in range(4))


@pytest.mark.parametrize("backend", CAPTURED)
def test_an_interruption_ends_a_captured_epoch(cuda_data: DeviceData, backend: Backend) -> None:
    result = fit(
        config_of("original", backend), cuda_data, should_stop=lambda: StopReason.INTERRUPTED
    )
    assert (result.stopped_by, result.epochs) == (StopReason.INTERRUPTED, 0)
