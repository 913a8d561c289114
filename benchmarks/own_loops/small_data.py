"""The task's data as both programs read it, and how good a network's forecasts are, as tuner says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tuner.data.prepare import prepare
from tuner.data.task import load_task, task_of
from tuner.data.windows import Batch, DeviceData, to_device
from tuner.training import evaluate
from tuner.training.quantile_loss import quantile_loss


def data_of(task: Mapping[str, Any] | None) -> DeviceData:
    """Of the study's task; of the demonstration's where the program runs by itself."""
    return to_device(prepare(load_task("demo") if task is None else task_of(task)), "cpu")


def loss_of(network: nn.Module, batch: Batch, data: DeviceData) -> Tensor:
    quantiles = torch.tensor(data.task.quantiles)
    return quantile_loss(network(batch.past, batch.future, batch.static), batch.target, quantiles)


def final_of(network: nn.Module, data: DeviceData) -> dict[str, float]:
    network.eval()
    found = evaluate(network, data)
    series = data.task.objective_series
    test, val = (
        (found.test_mql[series], found.val_mql[series])
        if series
        else (found.test_mql_mean, found.val_mql_mean)
    )
    return {"test_mql": test, "val_mql": val}
