"""Short trainings on a named backend, and generated data in the reference job's shapes."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.present import present
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device
from tuner.training import fit


def config_of(model: str, backend: Backend, *, dropout: float = 0.0, **hyper: float) -> RunConfig:
    values: dict[str, Any] = {
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "hidden_size": 64,
        "batch_size": 256,
    }
    return RunConfig(
        architecture=Architecture(model=model),
        hyperparameters=Hyperparameters(dropout=dropout, **values | hyper),
        training=TrainingSettings(max_epochs=6, backend=backend),
        seed=3,
    )


def losses(config: RunConfig, data: DeviceData) -> list[float]:
    return [
        value
        for epoch in fit(config, data).history
        for value in (epoch.train_loss, present(epoch.val_loss))
    ]


def protocol_shaped(dtype: torch.dtype) -> DeviceData:
    """Generated data in the reference job's shapes."""
    task = Task(
        name="shaped",
        source=DemoSource(kind="demo", rows=2000),
        target_columns=tuple("abcdefg"),
        frequency="h",
        input_size=168,
        horizon=24,
        calendar=("hour", "day_of_week", "month"),
        static_id=True,
    )
    return to_device(prepare(task, cache_dir=None), "cuda", dtype=dtype)
