"""A small real task for the training tests: generated data, seconds of training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.loss_terms import terms_file
from tests.support.tiny_tasks import tiny_task
from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import PreparedData, prepare
from tuner.data.windows import DeviceData, to_device


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Two series of 300 hours, two columns; 151 training windows a series, 302 in all."""
    task = tiny_task(
        calendar=("hour",),
        static_id=True,
        quantiles=(0.1, 0.25, 0.5, 0.75, 0.9),
        eval_quantiles=(0.1, 0.5, 0.9),
    )
    return prepare(task, cache_dir=tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def data(prepared: PreparedData) -> DeviceData:
    return to_device(prepared, "cpu")


@pytest.fixture(scope="module")
def terms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of functions and classes that a user might add to the training loss."""
    return terms_file(tmp_path_factory.mktemp("terms"))


@pytest.fixture(scope="session")
def run_config() -> Callable[..., RunConfig]:
    """A configuration for the small task; keywords go where they belong."""

    def build(model: str = "original", *, seed: int = 0, **changes: Any) -> RunConfig:
        hyperparameters: dict[str, Any] = {
            "learning_rate": 1e-3,
            "weight_decay": 0.0,
            "dropout": 0.1,
            "hidden_size": 8,
            "batch_size": 64,
        }
        settings: dict[str, Any] = {"max_epochs": 3}
        for name, value in changes.items():
            (hyperparameters if name in hyperparameters else settings)[name] = value
        return RunConfig(
            architecture=Architecture(model=model),
            hyperparameters=Hyperparameters(**hyperparameters),
            training=TrainingSettings(**settings),
            seed=seed,
        )

    return build
