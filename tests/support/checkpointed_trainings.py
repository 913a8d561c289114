"""Trainings that leave checkpoints in a folder."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from tuner.config import RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import FitResult, fit
from tuner.training.checkpoint import CheckpointFiles

IDENTITY = {"study": "tiny", "trial": 3, "seed": 7}


def files(folder: Path, **changes: object) -> CheckpointFiles:
    given = {"folder": folder, "stem": "trial-3", "identity": IDENTITY, "every_s": 0.0, **changes}
    return CheckpointFiles(**given)


def interrupted(
    config: RunConfig, data: DeviceData, store: CheckpointFiles, *, epoch: int
) -> FitResult:
    """Stops in the middle of the epoch after `epoch`."""
    steps = math.ceil(len(data.train) / config.hyperparameters.batch_size)
    asked = 0

    def stop() -> StopReason | None:
        nonlocal asked
        asked += 1
        return StopReason.INTERRUPTED if asked == steps * epoch + 2 else None

    result = fit(config, data, should_stop=stop, checkpoints=store)
    assert (result.stopped_by, result.epochs) == (StopReason.INTERRUPTED, epoch)
    return result


def losses(result: FitResult) -> list[tuple[float, float, float]]:
    return [(record.train_loss, record.val_loss, record.learning_rate) for record in result.history]


def assert_same(one: FitResult, other: FitResult) -> None:
    assert losses(one) == losses(other)
    assert (one.stopped_by, one.best_epoch, one.best_val_loss) == (
        other.stopped_by,
        other.best_epoch,
        other.best_val_loss,
    )
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
