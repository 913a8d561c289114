"""A worker on a real Slurm reaches its time limit, is queued again, and goes on with its trial.

Slurm's shortest limit is a minute, it looks every half a minute, and begins what was queued again
after two: some five minutes in all, so the test suite sends the signals itself instead.

    PYTHONPATH=. python benchmarks/chaos/walltime.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.support.cli_processes import Bench, finished
from tests.support.postgres_cluster import running_cluster
from tests.support.slurm_cluster import running_slurm

EPOCHS = 60


def main() -> int:
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    began = time.monotonic()
    said = ""

    def say(what: str) -> None:
        nonlocal said
        if what != said:
            print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)
            said = what

    with running_cluster() as postgres, running_slurm() as slurm:
        folder = Path(tempfile.mkdtemp(prefix="tuner-walltime-"))
        url = postgres.url(postgres.create_database())
        bench = Bench(folder, url, dict(slurm.environment))
        slow = bench.slowed()
        placed = ("--on", "slurm", "--placement", "time=1:00,notice=20")
        with bench.launched(2, *placed, epochs=EPOCHS) as launch:
            while launch.poll() is None:
                tasks, claims = slurm.tasks(), []
                if tasks.get("1_1") == "RUNNING" or "returned" in said:
                    claims = bench.claims()
                say(f"tasks {tasks}, claims {claims}")
                if ("returned", 0) in claims:
                    slow.unlink(missing_ok=True)
                time.sleep(1)
            ended = finished(launch)
        print(ended.err)
        print(slurm.ask("scontrol", "show", "job", "1_1"))
        with bench.opened() as study:
            trials = study.optuna.trials
        for trial in trials:
            kept = {name: trial.user_attrs.get(name) for name in ("attempts", "resumed_from_epoch")}
            print(trial.number, trial.state.name, kept)
        resumed = trials[0].user_attrs.get("resumed_from_epoch")
    good = ended.code == 0 and len(trials) == 2 and bool(resumed)
    print("went on where it was" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
