"""A supervisor and its worker without a database: what becomes of the worker when the supervisor is
killed.

Without arguments it is the supervisor; started by that one, the worker, which notes its number and
does nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tuner.devices import CpuCores
from tuner.launch import Supervisor
from tuner.storage.records import Counts
from tuner.worker.process import Orphan, StopFlag, stop_on_signals


@dataclass(frozen=True)
class Endless:
    """A study that is never filled: itself, its queue and its roster."""

    name: str = "endless"

    @property
    def roster(self) -> Endless:
        return self

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        return 0

    def counts(self) -> Counts:
        return Counts(1, 0, 0)

    def results(self, worker: str) -> int:
        return 0

    def leave(self, worker: str) -> None:
        """Nobody is listed here."""


def work(supervisor: int) -> None:
    stop = StopFlag()
    stop_on_signals(stop, supervised=True)
    orphan = Orphan(supervisor)
    orphan.will = lambda: None
    Path("worker").write_text(str(os.getpid()))
    stop.wait(3600.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--supervised-by", type=int)
    options, _ = parser.parse_known_args()
    if options.supervised_by is not None:
        work(options.supervised_by)
    else:
        Supervisor(
            studies=cast("Any", [Endless()]),
            queues=cast("Any", [Endless()]),
            devices=[CpuCores((0,))],
            worker_options=[],
            environment=dict(os.environ),
            log_folder=Path("logs"),
            worker_command=(sys.executable, __file__),
        ).run(lambda: None)
