from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tests.support.present import present
from tuner.bench.contender import is_kernel, median_within, per_step
from tuner.bench.entrants import size_of
from tuner.config import Architecture, Hyperparameters, RunConfig
from tuner.data.windows import DeviceData
from tuner.estimate.driven import stop_after
from tuner.models.registry import build_model
from tuner.training.engines.choose import make_engine


@pytest.mark.parametrize(
    ("name", "device_type", "annotation", "expected"),
    [
        ("void gemm<float>", DeviceType.CUDA, False, True),
        ("Memcpy DtoD (Device -> Device)", DeviceType.CUDA, False, False),
        ("Memset (Device)", DeviceType.CUDA, False, False),
        ("Optimizer.step#AdamW.step", DeviceType.CUDA, True, False),
        ("cudaGraphLaunch", DeviceType.CPU, False, False),
    ],
)
def test_only_kernels_count(
    name: str, device_type: DeviceType, annotation: bool, expected: bool
) -> None:
    event = SimpleNamespace(name=name, device_type=device_type, is_user_annotation=annotation)
    assert is_kernel(event) is expected


def test_what_an_epochs_beginning_adds_cancels_out() -> None:
    assert per_step(lambda steps: 7 + 286 * steps, 80) == 286
    assert per_step(lambda steps: 7 + 286 * steps, 2) == 286
    assert per_step(lambda steps: 7 + 286 * steps, 1) == 293


def test_an_epoch_stops_after_as_many_steps_as_asked(data: DeviceData) -> None:
    config = RunConfig(
        architecture=Architecture(model="original"),
        hyperparameters=Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=64
        ),
    )
    engine = make_engine(
        config, data, build_model(config.architecture, data.shapes, config.hyperparameters)
    )

    def updates(steps: int) -> int:
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            engine.train_epoch(torch.arange(len(data.train)), 1e-3, stop_after(steps))
        return sum(event.name.startswith("Optimizer.step") for event in profiled.events())

    assert [updates(1), updates(3)] == [1, 3]
    assert per_step(updates, 7) == 1


def test_the_datas_size_is_that_of_its_tensors(data: DeviceData) -> None:
    rows = sum(len(split.targets) for split in (data.train, data.val, data.test))
    train = data.train
    columns = train.history.shape[1] + train.targets.shape[1] + present(train.future).shape[1]
    values = 4 * rows * columns
    windows = sum(len(split) for split in (data.train, data.val, data.test))
    rest = size_of(data) - values - 2 * 8 * windows
    assert 0 < rest < 2000  # static covariates, scaling and step numbers


def test_utilisation_is_a_median_of_what_was_read_once_it_had_settled() -> None:
    samples = [(0.5, 1), (1.2, 2), (2.1, 90), (2.5, 94), (2.9, 92), (3.5, 0)]
    assert median_within(samples, (1.0, 3.0)) == 92
    assert median_within(samples, (1.0, 1.5)) == 2
    assert median_within(samples, (5.0, 6.0)) is None
