"""A tiny training of ours on the CPU, profiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_tasks import tiny_task
from tuner.config import Architecture, Hyperparameters, RunConfig
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores
from tuner.devices.cpu import available_cores
from tuner.profile.profile_records import Profile
from tuner.profile.variant_profile import profile_variant


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    task = tiny_task(calendar=("hour",), static_id=True)
    return to_device(prepare(task, cache_dir=tmp_path_factory.mktemp("prepared")), "cpu")


@pytest.fixture(scope="session")
def config() -> RunConfig:
    sizes = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=32
    )
    return RunConfig(architecture=Architecture(model="original"), hyperparameters=sizes)


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace.json"


@pytest.fixture(scope="session")
def told() -> list[Profile]:
    """What there was of the profile each time that more was measured."""
    return []


@pytest.fixture(scope="session")
def said() -> list[str]:
    """The lines meanwhile."""
    return []


@pytest.fixture(scope="session")
def profiled(
    config: RunConfig, data: DeviceData, trace: Path, told: list[Profile], said: list[str]
) -> Profile:
    """Without advice: each piece takes a training of its own."""
    cores = CpuCores(available_cores()[:1])
    return profile_variant(
        "original",
        config,
        data,
        cores,
        steps=30,
        advice=False,
        trace=trace,
        announce=said.append,
        tell=told.append,
    )
