"""A worker in this process, with trials that only pretend to train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

from tests.support.small_study import definition
from tuner.devices import CpuCores
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker
from tuner.worker.paths import Places

if TYPE_CHECKING:
    from tuner.training import EpochRecord

DEVICE = CpuCores((0,))
RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.25), Recorded(converged=True))


def epoch(number: int, elapsed_s: float | None = None) -> EpochRecord:
    from tuner.training import (
        EpochRecord,  # only here: every integration test imports this file, few train
    )

    return EpochRecord(
        epoch=number,
        train_loss=1.0 / number,
        val_loss=2.0 / number,
        learning_rate=1e-3,
        elapsed_s=float(number) if elapsed_s is None else elapsed_s,
    )


def three_epochs(job: TrialJob) -> TrialResult:
    for number in (1, 2, 3):
        job.on_epoch(epoch(number), 0)
    return result_of(job)


def result_of(job: TrialJob) -> TrialResult:
    return TrialResult(RESULT.state, RESULT.values, replace(RESULT.recorded, seed=job.number))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStudy]:
    """A study of two trials, the default configuration's first."""
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    yield study_in(database)
    database.close()


def study_in(database: Database, trials: int = 2) -> OpenStudy:
    study = create_or_resume(database, "small", definition(), trials=trials)
    study.set_policy(SearchPolicy(sampler="random"))
    return study


def work(
    study: OpenStudy,
    run_trial: Callable[[TrialJob], TrialResult | None],
    places: Path | None = None,
) -> None:
    Worker([study], DEVICE, run_trial, places=Places(places) if places else None, name="ann").run()


def away(*_: object, **__: object) -> None:
    raise OperationalError("INSERT", {}, Exception("server closed the connection"))
