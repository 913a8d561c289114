"""Two GPUs that train one network together, against one that trains it alone."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.support.backend_trainings import config_of
from tests.support.fitted_results import losses_of, same_weights
from tuner.config import Backend, Precision, RunConfig
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData
from tuner.devices import list_gpus
from tuner.devices.group import grouped
from tuner.models.registry import build_model
from tuner.training import FitResult, fit
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.ranks import Ranks

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.fixture(scope="module")
def ranks(small_data: PreparedData) -> Iterator[Ranks]:
    pair = grouped(list_gpus(os.environ)[:2], 2)[0]
    together = Ranks(pair, {small_data.data_hash: small_data})
    yield together
    together.close()


def on_two(config: RunConfig) -> RunConfig:
    return dataclasses.replace(config, training=config.training.but(gpus_per_trial=2))


def gradient(config: RunConfig, data: DeviceData, windows: int, ranks: Ranks | None) -> Tensor:
    """Of the last update of an epoch of so many windows, (parameters,)."""
    order = torch.arange(windows, device="cuda:0")
    with arithmetic(Precision.FP32), seeded(5, order.device):
        model = build_model(config.architecture, data.shapes, config.hyperparameters).cuda()
        engine = make_engine(config, data, model, ranks)
        engine.warm_up()
        engine.train_epoch(order, 1e-3, lambda: None)
        found = [p.grad.reshape(-1).clone() for p in model.parameters() if p.grad is not None]
        engine.close()
    return torch.cat(found)


@pytest.mark.parametrize("windows", [256, 256 + 1, 256 + 77])
def test_the_gradient_is_that_of_one_gpu(cuda_data: DeviceData, ranks: Ranks, windows: int) -> None:
    config = config_of("original", Backend.EAGER)
    alone = gradient(config, cuda_data, windows, None)
    with ranks.at_work():
        together = gradient(on_two(config), cuda_data, windows, ranks)
    off = float((alone - together).norm() / alone.norm())
    print(f"{windows} windows: off by {off:.1e} of the gradient's norm")
    assert off <= 1e-5


def test_a_training_repeats_bit_for_bit(cuda_data: DeviceData, ranks: Ranks) -> None:
    config = on_two(config_of("original", Backend.AUTO, dropout=0.2))

    def trained() -> FitResult:
        with ranks.at_work():
            return fit(config, cuda_data, ranks=ranks)

    one, other = trained(), trained()
    assert (one.backend, one.epochs) == (Backend.EAGER, 6)
    assert losses_of(one) == losses_of(other)
    assert same_weights(one, other)
