"""A trainer's process whose trainings take their time asleep, without torch.

The trial's number says what it does: one that a file `kill-NUMBER` names kills this process in its
second epoch, once. Each training is a line in `trainings`: its number, when it began and ended.
Where there is a file `asked`, with a line for each trial that has its parameters, a training lasts
until the next trial has some: however busy the machine, there was time to make that one ready.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from optuna.trial import TrialState

from tuner.config import Backend, EpochRecord
from tuner.devices.backend_rules import BackendChoice
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.trial.job import TimeLeft, TrialJob
from tuner.trial.run import alone_on
from tuner.worker.trainer import main

EPOCHS, EPOCH_S = 3, 0.05
NOBODY_COMES_S = 2.0
"""The last trial waits in vain."""


def train(job: TrialJob) -> TrialResult | None:
    left = TimeLeft(job.may_take_s, job.on_wait)
    with alone_on(job.device, job.should_stop, job.on_phase, left) as held:
        return _trained(job) if held else None


def _trained(job: TrialJob) -> TrialResult | None:
    began, killed = time.time(), Path(f"kill-{job.number}")
    if Path("measures").exists():
        mine = BackendChoice(backend=Backend.EAGER, reason=f"measured by trial {job.number}")
        with Path("backends").open("a") as told:
            told.write(f"{job.on_backend(mine).reason}\n")
    while Path(f"hold-{job.number}").exists() and job.should_stop() is None:
        time.sleep(EPOCH_S)
    for number in range(1, EPOCHS + 1):
        if job.should_stop() is not None:
            return None
        if number == EPOCHS:
            _until_the_next_is_asked_for(job.number)
        time.sleep(EPOCH_S)
        if number > 1 and killed.exists():
            killed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        record = EpochRecord(
            epoch=number,
            train_loss=1.0,
            val_loss=1.0 / number,
            learning_rate=1e-3,
            elapsed_s=EPOCH_S * number,
        )
        if job.epoch_ended(record, 0) is not None:
            break
    with Path("trainings").open("a") as trainings:
        trainings.write(f"{job.number} {began} {time.time()}\n")
    h = job.hyperparameters
    values = EPOCHS * EPOCH_S, (h.dropout or 0.0) + 1 / (h.hidden_size or 1)
    return TrialResult(TrialState.COMPLETE, values, Recorded(converged=True, epochs=EPOCHS))


def _until_the_next_is_asked_for(number: int) -> None:
    asked, deadline = Path("asked"), time.monotonic() + NOBODY_COMES_S
    while asked.exists() and time.monotonic() < deadline:
        if len(asked.read_text().splitlines()) > number + 1:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:], lambda: lambda *_: train)
