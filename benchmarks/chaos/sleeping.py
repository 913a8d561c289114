"""A training that takes its time asleep, without torch, and notes each trial that it saw the end of."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path

from optuna.trial import TrialState

from tuner.config import EpochRecord
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.worker.trainer import main

EPOCHS = 10


class SleepingTrainer:
    """Sleeps `trial_s` seconds a trial, and notes each trial that it saw the end of in a journal of its own."""

    lanes = 1

    def __init__(self, trial_s: float, journal: Path) -> None:
        self._pause_s = trial_s / EPOCHS
        self._journal = journal / f"{os.getpid()}-{secrets.token_hex(4)}.jsonl"

    def load(self, *_: object) -> bool:
        return True

    def close(self) -> None:
        pass

    def __call__(self, job: TrialJob) -> TrialResult | None:
        execution, began = secrets.token_hex(8), time.monotonic()
        for epoch in range(1, EPOCHS + 1):
            if job.should_stop():
                return None
            time.sleep(self._pause_s)
            elapsed = time.monotonic() - began
            job.on_epoch(
                EpochRecord(
                    epoch=epoch,
                    train_loss=1 / epoch,
                    val_loss=1 / epoch,
                    learning_rate=1e-3,
                    elapsed_s=elapsed,
                ),
                0,
            )
        h = job.hyperparameters
        values = (round(elapsed, 3), h.dropout + 1 / h.hidden_size)
        told = {"trial": job.number, "seed": job.seed, "execution": execution, "values": values}
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        said = Recorded(
            stopped_by="converged",
            converged=True,
            epochs=EPOCHS,
            other={"execution": execution},
        )
        return TrialResult(TrialState.COMPLETE, values, said)


if (
    __name__ == "__main__"
):  # as a worker's trainer: trial's seconds, journal, and what that is given
    sleeping = SleepingTrainer(float(sys.argv[1]), Path(sys.argv[2]))
    main(sys.argv[3:], lambda: lambda *_: sleeping)
