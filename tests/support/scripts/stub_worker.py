"""A worker as `tuner worker` is one, whose trials do what their number says instead of training.
Without torch.

Where there is a file `dies`, it is killed when it has its first result and is about to store it;
where there is one `leaves`, its first trial ends the process as if all were done.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, cast

from optuna.trial import TrialState

from tests.support.pretend_trainer import PretendTrainer
from tuner.cli.device import own_device
from tuner.record import Recorded
from tuner.storage.queue.claims import Ledger
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.worker import process
from tuner.worker.process import FRESH_PROCESS, ContextLostError, Orphan
from tuner.worker.session import WorkOrder, work


def trial(job: TrialJob) -> TrialResult:
    """The first attempt at trial 0 hangs, at trial 1 loses its CUDA context; all else is well."""
    if Path("leaves").exists():
        Path("leaves").unlink()
        os._exit(0)
    first = Path(f"attempt-{job.number}")
    if job.number <= 1 and not first.exists():
        first.touch()
        if job.number == 0:
            time.sleep(600)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return TrialResult(TrialState.COMPLETE, (1.0, 0.5), Recorded(converged=True))


def killed(*_: object) -> None:
    Path("dies").unlink()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if Path("dies").exists():
        Ledger.finish = killed  # type: ignore[method-assign, assignment]
    process.ORPHAN_WILL_S = 120.0  # a second may not suffice for handing back on a busy machine
    parser = argparse.ArgumentParser()
    for name in ("--study", "--name", "--cores"):
        parser.add_argument(name)
    for name in ("--supervised-by", "--heartbeat"):
        parser.add_argument(name, type=int)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    orphan = Orphan(options.supervised_by)
    device = own_device(gpu=None, cpu=True, cores=options.cores)
    order = WorkOrder(
        studies=options.study,
        storage=os.environ["TUNER_STORAGE"],
        name=options.name,
        heartbeat=options.heartbeat,
    )
    try:
        code = work(order, device, cast("Any", PretendTrainer(trial)), orphan=orphan)
    except ContextLostError:
        code = FRESH_PROCESS
    sys.exit(code)
