"""A generated road as a task, and trainings of the Social-xLSTM variants on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.social_xlstm.generate import write
from tests.support.present import present
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData
from tuner.training import fit

OWN = {"cell": "own", "n_heads": 2}


def prepared_road(folder: Path, *, detectors: int = 5, rows: int = 300) -> PreparedData:
    """Twelve steps in, four ahead."""
    task = write(folder, detectors=detectors, rows=rows, input_size=12, horizon=4)
    return prepare(load_task(str(task)), cache_dir=folder / "prepared")


def losses(config: RunConfig, data: DeviceData) -> list[float]:
    """Of each epoch, training and validation."""
    history = fit(config, data).history
    return [loss for each in history for loss in (each.train_loss, present(each.val_loss))]


def config_of(
    variant: str,
    *,
    settings: dict[str, Any] | None = None,
    dropout: float = 0.1,
    learning_rate: float = 1e-3,
    **training: Any,
) -> RunConfig:
    """Two epochs of a network of 16 units."""
    hyperparameters = Hyperparameters(
        learning_rate=learning_rate,
        weight_decay=0.0,
        dropout=dropout,
        hidden_size=16,
        batch_size=64,
    )
    given: dict[str, Any] = {"max_epochs": 2, "backend": Backend.AUTO, **training}
    return RunConfig(
        architecture=Architecture(model=variant, settings={**OWN, **(settings or {})}),
        hyperparameters=hyperparameters,
        training=TrainingSettings(**given),
        seed=3,
    )
