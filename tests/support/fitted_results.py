"""What tests ask of a training that `fit` returned."""

from __future__ import annotations

import torch

from tests.support.present import present
from tuner.data.windows import DeviceData
from tuner.training import FitResult
from tuner.training.quantile_loss import quantile_loss


def losses_of(result: FitResult) -> list[tuple[float, float | None]]:
    return [(record.train_loss, record.val_loss) for record in result.history]


def same_weights(a: FitResult, b: FitResult) -> bool:
    ours, theirs = present(a.model).state_dict(), present(b.model).state_dict()
    return all(torch.equal(p, q) for p, q in zip(ours.values(), theirs.values(), strict=True))


def validation_loss(result: FitResult, data: DeviceData) -> float:
    model = present(result.model)
    batch = data.val.gather(torch.arange(len(data.val)))
    with torch.no_grad():
        forecast = model(batch.past, batch.future, batch.static)
        return quantile_loss(forecast, batch.target, torch.tensor(data.task.quantiles)).item()
