"""A worker as `tuner worker` is one, but for its training: a trial takes its time asleep, without torch."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from optuna.trial import TrialState

from tuner.cli.device import own_device
from tuner.record import Recorded
from tuner.storage import dialects
from tuner.storage.queue import leases
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.worker.process import Orphan
from tuner.worker.session import WorkOrder, work

EPOCHS = 10


class SleepingTrainer:
    """Sleeps `trial_s` seconds a trial, and notes each trial that it saw the end of in a journal of its own."""

    def __init__(self, trial_s: float, journal: Path) -> None:
        self._pause_s = trial_s / EPOCHS
        self._journal = journal / f"{os.getpid()}-{secrets.token_hex(4)}.jsonl"

    lanes = 1

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
            record: Any = SimpleNamespace(
                epoch=epoch,
                train_loss=1 / epoch,
                val_loss=1 / epoch,
                learning_rate=1e-3,
                elapsed_s=elapsed,
            )
            job.on_epoch(record, 0)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--supervised-by", type=int)
    parser.add_argument("--name")
    parser.add_argument("--heartbeat", type=int)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--cores")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--lease-s", type=float, required=True)
    parser.add_argument("--trial-s", type=float, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    options = parser.parse_args()
    leases.LEASE_S, dialects.IDLE_TRANSACTION_TIMEOUT_S = options.lease_s, options.lease_s / 2
    orphan = Orphan(options.supervised_by) if options.supervised_by is not None else None
    device = own_device(gpu=None, cpu=True, cores=options.cores)
    trainer = SleepingTrainer(options.trial_s, options.journal)
    order = WorkOrder(
        studies=options.study,
        storage=os.environ["TUNER_STORAGE"],
        name=options.name,
        verify=options.verify,
        heartbeat=options.heartbeat,
    )
    return work(order, device, trainer, orphan=orphan)


if __name__ == "__main__":
    sys.exit(main())
