"""Networks that nobody trained, saved as `tuner train` saves them: what they forecast is as good
as any where only the way of a forecast is looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from tuner.config import Architecture, Hyperparameters
from tuner.data.prepare import prepare
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.export.saved_model import describe, save_model
from tuner.models.registry import build_model

HYPERPARAMETERS = Hyperparameters(
    learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=32
)


def table(columns: tuple[str, ...], *, series: tuple[str, ...], rows: int) -> pd.DataFrame:
    """Hourly rows of a sine and noise, one series after the other, in columns `ds`, `site`, ..."""
    random = np.random.default_rng(1)
    hours = pd.date_range("2024-01-01", periods=rows, freq="h")
    parts = []
    for number, name in enumerate(series):
        wave = 50 * (number + 1) + 10 * np.sin(np.arange(rows) / 4)
        values = {column: wave + random.normal(size=rows) for column in columns}
        parts.append(pd.DataFrame({"ds": hours, "site": name, **values}))
    return pd.concat(parts, ignore_index=True)


def save_untrained(
    path: Path, frame: pd.DataFrame, task: Task, *, model: str = "rmsnorm"
) -> nn.Module:
    """A network for the task at `path`, its card beside it, scaled by the rows of `frame`."""
    data = path.with_suffix(".csv")
    frame.to_csv(data, index=False)
    source = CsvSource(kind="csv", path=data, id_column="site")
    prepared = prepare(
        task.model_copy(update={"source": source}), cache_dir=path.parent / "prepared"
    )
    architecture = Architecture(model=model)
    torch.manual_seed(0)
    network = build_model(architecture, prepared.shapes, HYPERPARAMETERS)
    save_model(path, network, describe(prepared, architecture, HYPERPARAMETERS))
    return network


def task_of(columns: tuple[str, ...], **changes: object) -> Task:
    """Of a CSV with these target columns: 24 hours in, 6 out."""
    plain = {
        "name": "small",
        "source": {"kind": "csv", "path": "small.csv", "id_column": "site"},
        "target_columns": columns,
        "frequency": "h",
        "input_size": 24,
        "horizon": 6,
        "quantiles": (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95),
        **changes,
    }
    return Task.model_validate(plain)
