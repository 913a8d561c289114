"""A worker as `tuner worker` is one, but for its training: a trial takes its time asleep, without torch."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from sleeping import SleepingTrainer

from tuner.cli.device import own_device
from tuner.storage import dialects
from tuner.storage.queue import leased_queue
from tuner.worker.process import Orphan
from tuner.worker.session import Trainer, WorkOrder, work
from tuner.worker.trainer import TrainerProcess

SLEEPING = Path(__file__).with_name("sleeping.py")


class Beside(TrainerProcess):
    """Sleeps in a process of its own; there is no data."""

    def load(self, prepare: object, *more: Any) -> TrainerProcess | None:
        del prepare
        return super().load(dict, *more)


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
    parser.add_argument("--beside", action="store_true", help="trainings in a process of their own")
    options = parser.parse_args()
    leased_queue.LEASE_S, dialects.IDLE_TRANSACTION_TIMEOUT_S = options.lease_s, options.lease_s / 2
    orphan = Orphan(options.supervised_by) if options.supervised_by is not None else None
    device = own_device(gpu=None, cpu=True, cores=options.cores)
    trainer: Trainer = SleepingTrainer(options.trial_s, options.journal)
    if options.beside:
        command = (sys.executable, str(SLEEPING), str(options.trial_s), str(options.journal))
        trainer = Beside(device, options.heartbeat, command)
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
