"""A stand-in for a training: its curve follows from the hyperparameters."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optuna.trial import TrialState
from sqlalchemy import Engine, event

from tuner.config import StopReason
from tuner.record import Recorded
from tuner.search.bounds import epochs_waited
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob

if TYPE_CHECKING:
    from tuner.training import EpochRecord


def epoch_record(number: int, loss: float, learning_rate: float, elapsed_s: float) -> EpochRecord:
    from tuner.training import EpochRecord  # only here: it comes with torch

    return EpochRecord(
        epoch=number,
        train_loss=loss,
        val_loss=loss,
        learning_rate=learning_rate,
        elapsed_s=elapsed_s,
    )


@dataclass
class Training:
    """Stands in for the training: a curve that follows from the hyperparameters, stopped as the
    protocol says."""

    engine: Engine
    statements: list[str]

    def __call__(self, job: TrialJob) -> TrialResult:
        training, h = job.definition.training, job.hyperparameters
        speed = 0.3 * min(1.0, h.learning_rate / 1e-3) ** 0.5
        s_per_epoch = 64 / h.batch_size + (h.hidden_size or 0) / 256
        losses: list[float] = []
        reason = StopReason.EPOCH_LIMIT
        while len(losses) < training.max_epochs and reason is StopReason.EPOCH_LIMIT:
            losses.append(
                round(
                    0.2 + 0.1 * (h.dropout or 0.0) + 0.5 * math.exp(-speed * (len(losses) + 1)), 4
                )
            )
            epoch = epoch_record(
                len(losses), losses[-1], h.learning_rate, s_per_epoch * len(losses)
            )
            with statements(self.engine) as seen:
                told = job.epoch_ended(epoch, 0)
            self.statements += seen
            if epochs_waited(losses, training.min_delta) == training.patience:
                reason = StopReason.CONVERGED
            elif told is not None:
                reason = told
        said = Recorded(
            stopped_by=reason.value,
            converged=reason is StopReason.CONVERGED,
            epochs=len(losses),
        )
        if reason is StopReason.PRUNED:
            ended = dataclasses.replace(said, failure="stopped after an epoch")
            return TrialResult(TrialState.PRUNED, None, ended)
        return TrialResult(TrialState.COMPLETE, (s_per_epoch * len(losses), 4 * min(losses)), said)


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    """Those of this thread: another one renews the lease."""
    seen: list[str] = []
    thread = threading.get_ident()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if threading.get_ident() == thread:
            seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)
