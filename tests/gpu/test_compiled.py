"""The compiled engine computes what the eager one computes, in every variant, and keeps what it compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_graph import config_of, losses

from tuner.config import Backend, Precision
from tuner.data.windows import DeviceData
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.backends import make_engine


@pytest.mark.parametrize("model", ["original", "rmsnorm"])
def test_compiled_training_follows_the_eager_one(cuda_data: DeviceData, model: str) -> None:
    eager = losses(config_of(model, Backend.EAGER), cuda_data)
    compiled = losses(config_of(model, Backend.COMPILE), cuda_data)
    assert compiled == pytest.approx(eager, rel=1e-4)


@pytest.mark.parametrize("model", builtin_names())
def test_compiled_trainings_are_the_same_bit_for_bit_every_time(cuda_data: DeviceData, model: str) -> None:
    """Its covariates are mixed on streams of their own: memory used again too early would show as another result."""
    config = config_of(model, Backend.COMPILE, dropout=0.2, hidden_size=128)
    first = losses(config, cuda_data)
    assert all(losses(config, cuda_data) == first for _ in range(4))


def test_half_precision_is_compiled_as_well(cuda_data: DeviceData) -> None:
    """bfloat16 has three digits: six epochs of it are near the eager ones, and not those of fp32."""

    def half(backend: Backend) -> list[float]:
        config = config_of("original", backend)
        return losses(replace(config, training=replace(config.training, precision=Precision.BF16)), cuda_data)

    compiled = half(Backend.COMPILE)
    assert compiled == pytest.approx(half(Backend.EAGER), rel=3e-2)
    assert compiled != pytest.approx(losses(config_of("original", Backend.COMPILE), cuda_data), rel=1e-6)


def test_a_double_precision_network_runs_without_the_kernels_around_it(cuda_data: DeviceData) -> None:
    config = config_of("original", Backend.COMPILE)
    model = build_model(config.architecture, cuda_data.shapes, config.hyperparameters).double().cuda()
    single = build_model(config.architecture, cuda_data.shapes, config.hyperparameters).cuda()
    kinds = [type(make_engine(config, cuda_data, each)).__name__ for each in (model, single)]
    assert kinds == ["CompiledEngine", "CompiledStepEngine"]


def test_a_second_training_of_the_same_sizes_compiles_nothing(cuda_data: DeviceData) -> None:
    config = config_of("original", Backend.COMPILE, dropout=0.2)
    first = fit(config, cuda_data)
    counters = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    second = fit(config, cuda_data)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counters
    assert second.setup_s < 2.0
    assert [e.val_loss for e in first.history] == [e.val_loss for e in second.history]
