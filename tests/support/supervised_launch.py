"""A supervisor whose workers are short commands, beside a queue that is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tuner.devices import CpuCores
from tuner.launch import Outcome, Supervisor, supervisor
from tuner.launch.child import EarlyWorkers
from tuner.storage.records import Counts


@dataclass
class Queue:
    """A study's queue and roster: how many trials are planned and finished, and whose results
    those were."""

    budget: int
    finished: int = 0
    asked: int = 0
    of: Callable[[str], int] = lambda worker: 0
    on_ask: Callable[[Queue], None] = lambda queue: None

    def counts(self) -> Counts:
        self.asked += 1
        self.on_ask(self)
        return Counts(self.budget, 0, self.finished)

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        return 0

    def results(self, worker: str) -> int:
        return self.of(worker)

    def leave(self, worker: str) -> None:
        """Nobody is listed here."""


@dataclass
class Study:
    roster: Queue
    name: str = "small"


@dataclass
class Launch:
    """A supervisor whose workers run `script`, which hears nothing of the queue."""

    queue: Queue
    folder: Path
    script: str = "exit 0"
    devices: int = 1
    deliver: Callable[[], object] = lambda: None
    ticks: int = 0
    started: list[str] = field(default_factory=list)
    early: EarlyWorkers = field(default_factory=EarlyWorkers)

    def run(self, on_tick: Callable[[Launch], None] = lambda launch: None) -> Outcome:
        def tick() -> None:
            self.ticks += 1
            on_tick(self)

        return Supervisor(
            studies=cast("Any", [Study(self.queue)]),
            queues=cast("Any", [self.queue]),
            devices=[CpuCores((core,)) for core in range(self.devices)],
            worker_options=["--"],
            environment={},
            log_folder=self.folder,
            worker_command=["/bin/sh", "-c", f"echo started; {self.script}"],
            deliver=self.deliver,
            early=self.early,
        ).run(tick)

    def starts(self, core: int = 0) -> int:
        return sum(
            log.read_text().count("started") for log in self.folder.glob(f"worker-*-cpu{core}.log")
        )


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pauses are hundredths of a second."""
    monkeypatch.setattr(supervisor, "POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "REAP_S", 0.02)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)
