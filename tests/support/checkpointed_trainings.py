"""Trainings that leave checkpoints in a folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.fitted_results import same_weights
from tuner.config import RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import FitResult, checkpoint, fit
from tuner.training.checkpoint import CheckpointFiles

IDENTITY: dict[str, str | int] = {"study": "tiny", "trial": 3, "seed": 7}


def files(folder: Path, **changes: Any) -> CheckpointFiles:
    """Of trainings that take milliseconds, and leave checkpoints all the same."""
    given: dict[str, Any] = {
        "stem": "trial-3",
        "identity": IDENTITY,
        "every_s": 0.0,
        "least_s": 0.0,
    }
    return CheckpointFiles(folder=folder, **given | changes)


def interrupted(
    config: RunConfig, data: DeviceData, store: CheckpointFiles, *, epoch: int
) -> FitResult:
    """Is asked to stop in the middle of `epoch`, the second or a later one: they are short."""
    update_size = config.hyperparameters.batch_size * config.accumulate
    steps = math.ceil(len(data.train) / update_size)
    asked = 0

    def stop() -> StopReason | None:
        nonlocal asked
        asked += 1
        return StopReason.INTERRUPTED if asked == steps * (epoch - 1) + 2 else None

    with mock.patch.object(checkpoint, "LONG_EPOCH_S", math.inf):  # however slow the machine
        result = fit(config, data, should_stop=stop, checkpoints=store)
    assert (result.stopped_by, result.epochs) == (StopReason.INTERRUPTED, epoch)
    return result


def losses(result: FitResult) -> list[tuple[float, float | None, float]]:
    return [(record.train_loss, record.val_loss, record.learning_rate) for record in result.history]


def assert_same(one: FitResult, other: FitResult) -> None:
    assert losses(one) == losses(other)
    assert (one.stopped_by, one.best_epoch, one.best_val_loss) == (
        other.stopped_by,
        other.best_epoch,
        other.best_val_loss,
    )
    assert same_weights(one, other)
