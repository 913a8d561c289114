"""A launch as `tuner launch` is one, without the checks before it: the supervisor itself, and workers that sleep."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

from tuner.cli.foreground import stopped_by_signals
from tuner.devices import CpuCores
from tuner.devices.cpu import available_cores
from tuner.launch import Outcome, StopRequests, Supervisor
from tuner.storage import dialects
from tuner.storage.database import open_database
from tuner.storage.queue import leased_queue
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.verdict.verified import verifications_of

WORKER = Path(__file__).with_name("worker.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--lease-s", type=float, required=True)
    parser.add_argument("--trial-s", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--beside", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    leased_queue.LEASE_S, dialects.IDLE_TRANSACTION_TIMEOUT_S = options.lease_s, options.lease_s / 2
    logging.getLogger(__name__).info("started")
    database = open_database(parse_url(os.environ["TUNER_STORAGE"]), create=False)
    opened = open_study(database, options.study)
    opened.ledger.return_strays()
    opened.ledger.reap()
    queue: Queue[Any] = verifications_of([opened]) if options.verify else opened.ledger
    cores = available_cores()
    stop = StopRequests()
    supervisor = Supervisor(
        studies=[opened],
        queues=[queue],
        devices=[CpuCores((cores[number % len(cores)],)) for number in range(options.workers)],
        worker_options=[
            *("--lease-s", str(options.lease_s)),
            *("--trial-s", str(options.trial_s)),
            *("--journal", str(options.folder / "journal")),
            *(["--verify"] if options.verify else []),
            *(["--beside"] if options.beside else []),
        ],
        environment=dict(os.environ),
        log_folder=options.folder / "logs",
        worker_command=(sys.executable, str(WORKER)),
        stop=stop,
    )
    with stopped_by_signals(stop):
        outcome = supervisor.run(lambda: None)
    print(f"ended: {outcome}")
    database.close()
    return 0 if outcome is Outcome.FILLED else 1


if __name__ == "__main__":
    sys.exit(main())
