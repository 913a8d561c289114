"""The compiled engine computes what the eager one does, and keeps what it compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.support.backend_trainings import config_of, losses
from tests.support.present import present
from tuner.config import Backend, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.determinism import seeded
from tuner.training.engines.choose import make_engine

ROUNDING = 2.0**-24
"""Half the distance of two neighbouring numbers in fp32, relative to them."""


@pytest.mark.parametrize("model", ["original", "rmsnorm"])
def test_compiled_training_is_as_near_to_float64_as_the_eager_one(
    cuda_data: DeviceData, double_data: DeviceData, model: str
) -> None:
    """Learning at ten times the protocol's rate, so that last digits grow: eager trainings from
    weights that differ by one rounding part by 1e-4 in six epochs. The compiled one may stray from
    float64 as far as these do, no farther.
    """
    config = config_of(model, Backend.EAGER)
    truth = losses_from(config, double_data, network(config, double_data).double())
    strayed = [
        strays(losses_from(config, cuda_data, jittered(network(config, cuda_data), seed)), truth)
        for seed in range(6)
    ]
    compiled = strays(losses(config_of(model, Backend.COMPILE), cuda_data), truth)
    allowed = max(max(each) for each in strayed)
    print(f"{model}: compiled strays {max(compiled):.1e} from float64, eager up to {allowed:.1e}")
    assert max(compiled[:2]) < 1e-5  # of the first epoch, before anything has grown
    assert max(compiled) <= 2 * allowed
    assert allowed < 1e-3


def network(config: RunConfig, data: DeviceData) -> nn.Module:
    """The one that `fit` begins with."""
    with seeded(config.seed, torch.device("cuda")):
        return build_model(config.architecture, data.shapes, config.hyperparameters)


def jittered(model: nn.Module, seed: int) -> nn.Module:
    """With every weight moved by one rounding, up or down; as it is for seed 0."""
    if seed > 0:
        signs = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                sign = 2 * torch.randint(0, 2, parameter.shape, generator=signs) - 1
                parameter.mul_(1 + 1.5 * ROUNDING * sign)
    return model


def losses_from(config: RunConfig, data: DeviceData, model: nn.Module) -> list[float]:
    history = fit(config, data, model=model).history
    return [value for epoch in history for value in (epoch.train_loss, present(epoch.val_loss))]


def strays(values: list[float], truth: list[float]) -> list[float]:
    return [abs(value / true - 1) for value, true in zip(values, truth, strict=True)]


@pytest.mark.parametrize("model", builtin_names())
def test_compiled_trainings_are_the_same_bit_for_bit_every_time(
    cuda_data: DeviceData, model: str
) -> None:
    """Covariates are mixed on other streams: memory used again too early would change results."""
    config = config_of(model, Backend.COMPILE, dropout=0.2, hidden_size=128)
    first = losses(config, cuda_data)
    assert all(losses(config, cuda_data) == first for _ in range(4))


def test_half_precision_is_compiled_as_well(cuda_data: DeviceData) -> None:
    """bfloat16 has three digits: six epochs are near the eager ones, and not those of fp32."""

    def half(backend: Backend) -> list[float]:
        config = config_of("original", backend)
        return losses(
            replace(config, training=config.training.but(precision=Precision.BF16)), cuda_data
        )

    compiled = half(Backend.COMPILE)
    assert compiled == pytest.approx(half(Backend.EAGER), rel=3e-2)
    assert compiled != pytest.approx(
        losses(config_of("original", Backend.COMPILE), cuda_data), rel=1e-6
    )


def test_a_double_precision_network_runs_without_the_kernels_around_it(
    cuda_data: DeviceData,
) -> None:
    config = config_of("original", Backend.COMPILE)
    model = (
        build_model(config.architecture, cuda_data.shapes, config.hyperparameters).double().cuda()
    )
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
