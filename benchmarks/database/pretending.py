"""Workers that only pretend to train: the product's own worker and queue, many in one process.

Each has what a worker's process has: connections of its own, a name in the roster, a lease that is
renewed, an outbox on disk.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from benchmarks.database.overhead import ATTRIBUTES, EPOCHS
from tuner.config import EpochRecord
from tuner.devices import CpuCores
from tuner.record import Recorded
from tuner.storage.database import open_database
from tuner.storage.optuna.private import numbered
from tuner.storage.queue.claims import Ledger
from tuner.storage.records import Claim, TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker
from tuner.worker.paths import WorkerPaths

DEVICE = CpuCores((0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the clients do."""

    url: str
    study: str
    trial_s: float = 0.0
    """How long a trial lasts, half as long to half as long again; 0: it ends at once."""
    reads: bool = False
    """Whether a suggestion reads what is new in the study, as samplers do; else it is drawn
    without a look."""


@dataclass(slots=True)
class Heard:
    """What the clients of one process lived through."""

    claim_s: list[float] = field(default_factory=list)
    """What each claim that gave a trial took."""
    ended: list[tuple[float, int, float]] = field(default_factory=list)
    """Of each result: when its worker had stored it, its trial, and its time objective."""
    failures: list[str] = field(default_factory=list)


class TimedLedger(Ledger):
    """A ledger that notes how long its claims take."""

    heard: Heard

    def claim(self, worker: str, *, token: str | None = None) -> Claim | None:
        began = time.perf_counter()
        found = super().claim(worker, token=token)
        if found is not None:
            self.heard.claim_s.append(time.perf_counter() - began)
        return found


@dataclass(frozen=True, slots=True)
class Blind(OpenStudy):
    """A study whose suggestions are drawn without a look at it."""

    def ask(self, claim: Claim) -> FrozenTrial | None:
        space = self.definition.space
        params = space.at([random.random() for _ in space.ranges])
        if not self.ledger.write_parameters(claim, params, space.stored(), {}):
            return None
        trial = optuna.trial.create_trial(
            state=TrialState.RUNNING, params=space.held(params), distributions=space.stored()
        )
        trial.params = params  # what it trains with
        numbered(trial, claim.trial_number)
        return trial


class Pretended:
    """Trials of one worker: as long as they are to last, with an epoch a second, or all at once."""

    def __init__(self, trial_s: float, heard: Heard) -> None:
        self._trial_s, self._heard = trial_s, heard
        self._made: dict[int, float] = {}

    def __call__(self, job: TrialJob) -> TrialResult | None:
        lasts = self._trial_s * random.uniform(0.5, 1.5)
        epochs = max(EPOCHS, int(lasts))
        for epoch in range(epochs):
            time.sleep(lasts / epochs)
            if job.should_stop():
                return None
            job.on_epoch(_epoch(epoch), 0)
        seconds = random.uniform(1.0, 9.0)
        self._made[job.number] = seconds
        return TrialResult(TrialState.COMPLETE, (seconds, 0.8), Recorded.from_flat(ATTRIBUTES))

    def stored(self, number: int) -> None:
        self._heard.ended.append((time.time(), number, self._made[number]))


def _epoch(number: int) -> EpochRecord:
    return EpochRecord(
        epoch=number, train_loss=0.3, val_loss=0.3, learning_rate=1e-4, elapsed_s=float(number)
    )


def clients(load: Load, count: int, folder: Path, ready: Any, answers: Any) -> None:
    """So many workers in this process, until the study's budget is filled."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    heard = Heard()
    gate = threading.Barrier(count + 1)
    threads = [
        threading.Thread(target=_client, args=(load, folder / str(i), heard, gate))
        for i in range(count)
    ]
    for thread in threads:
        thread.start()
    gate.wait()  # all have opened the study
    ready.wait(600)
    gate.wait()
    for thread in threads:
        thread.join()
    answers.put(heard)


def _client(load: Load, folder: Path, heard: Heard, gate: threading.Barrier) -> None:
    try:
        database = open_database(parse_url(load.url), create=False)
        opened = _opened(open_study(database, load.study), load, heard)
        pretended = Pretended(load.trial_s, heard)
    except Exception:  # noqa: BLE001 - the report shows it
        heard.failures.append(traceback.format_exc())
        gate.wait()
        gate.wait()
        return
    gate.wait()
    gate.wait()
    try:
        worker = Worker([opened], DEVICE, pretended, paths=WorkerPaths(folder))
        _noting(worker, pretended)
        worker.run()
    except Exception:  # noqa: BLE001 - the report shows it
        heard.failures.append(traceback.format_exc())
    finally:
        database.close()


def _opened(opened: OpenStudy, load: Load, heard: Heard) -> OpenStudy:
    ledger = TimedLedger(opened.database, opened.study_id, name=opened.name)
    ledger.heard = heard
    opened = dataclasses.replace(opened, ledger=ledger)
    if load.reads:
        return opened
    return Blind(**{each.name: getattr(opened, each.name) for each in dataclasses.fields(opened)})


def _noting(worker: Worker, pretended: Pretended) -> None:
    """Have the worker note each result that counts, once it is stored."""
    deliver = worker._deliver  # noqa: SLF001 - what only the worker knows

    def noted(queue: Any, piece: Any, result: TrialResult) -> bool:
        counted: bool = deliver(queue, piece, result)
        if counted:
            pretended.stored(piece.ticket.trial_number)
        return counted

    worker._deliver = noted  # type: ignore[method-assign]  # noqa: SLF001
