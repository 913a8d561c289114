"""Finished studies without the training: real database, real claims, made-up but plausible
results."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.api import load_study
from tuner.config import TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.record import Recorded
from tuner.search.sampler import EncodedSampler
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership, name_of_search, seed_of_trial
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.results import StudyResults

DEVICE = "Example CPU, 2 cores"
VARIANTS = ("rmsnorm", "original")


@dataclass(frozen=True, slots=True)
class RecordedDatabase:
    """A database with two finished studies of the demo task."""

    path: Path
    studies: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def copied_into(self, folder: Path) -> None:
        """Where a command in `folder` looks for a database that nobody names."""
        (folder / "storage").mkdir(parents=True)
        with (
            sqlite3.connect(self.path) as source,
            sqlite3.connect(folder / "storage" / "tuner.db") as target,
        ):
            source.backup(target)

    def results(self, study: str) -> StudyResults:
        return load_study(study, storage=self.url)


@pytest.fixture(scope="session")
def recorded_database(tmp_path_factory: pytest.TempPathFactory) -> RecordedDatabase:
    """Two finished studies in SQLite. Shared: a test that writes makes its own with
    `record_study`."""
    path = tmp_path_factory.mktemp("recorded") / "tuner.db"
    return RecordedDatabase(
        path, tuple(record_study(f"sqlite:///{path}", variant=variant) for variant in VARIANTS)
    )


def record_study(
    storage: str,
    *,
    variant: str,
    task: str = "demo",
    name: str = "",
    trials: int = 12,
    max_epochs: int = 200,
    device: str = DEVICE,
    worker: str = "recorder",
    said: Mapping[str, Any] | None = None,
    membership: Membership | None = None,
    mql_split: str = "test",
) -> str:
    """Create the study `name` (`<task>-<variant>`) at `storage` and record `trials` results in it;
    returns its name.

    All of them converged, but for the two last where there are five or more: one at its epoch
    limit, one diverged. `said` are attributes that every result has besides, or instead.
    """
    described = load_task(task)
    name = name or f"{task}-{variant}"
    definition = StudyDefinition.of(
        load_study_file(variant),
        task=described.definition(),
        data_hash=prepare(described).data_hash,
        training=TrainingSettings(max_epochs=max_epochs),
        mql_split=mql_split,
    )
    database = open_database(parse_url(storage))
    try:
        opened = create_or_resume(database, name, definition, trials=trials, membership=membership)
        opened.bind_device_model(device)
        # Of its name, not of the path to its file, which is longer the more often tests have run.
        seed = len(definition.variant) + opened.membership.search - 1
        opened.optuna.sampler = EncodedSampler(definition.space, "random", seed=seed)
        # While a connection is open, SQLite does not tidy up after each of the others.
        with database.engine.connect():
            for number in range(trials):
                _record(opened, worker, said or {}, tail=number - trials if trials >= 5 else -9)
    finally:
        database.close()
    return name


def _record(opened: OpenStudy, worker: str, said: Mapping[str, Any], *, tail: int) -> None:
    claim = opened.ledger.claim(worker)
    assert claim is not None
    trial = opened.ask(claim)
    assert trial is not None
    if tail == -1:
        attributes = {
            "stopped_by": "diverged",
            "converged": False,
            "failure": "the loss became nan in epoch 2",
        }
        result = TrialResult(TrialState.FAIL, None, Recorded.from_flat(attributes))
    else:
        pace = 1.0 if opened.definition.variant == "rmsnorm" else 1.25
        seed = seed_of_trial(trial.number, root=opened.membership.seed_root)
        result = _plausible(
            trial.params, number=trial.number, seed=seed, converged=tail != -2, pace=pace
        )
    result = replace(result, recorded=Recorded.from_flat({**result.recorded.to_flat(), **said}))
    opened.epochs.write(trial.number, claim.work_id, _curve(result.recorded))
    assert opened.ledger.finish(claim, result)


def _curve(recorded: Recorded) -> list[EpochRow]:
    """A validation loss that falls toward the trial's own and rises a little after its best
    epoch."""
    epochs, best = recorded.epochs or 2, recorded.best_epoch or 1
    pace, loss = recorded.s_per_epoch or 0.1, recorded.val_loss or 1.0
    return [
        EpochRow(
            epoch,
            round(loss * (0.9 + 1.5 * math.exp(-epoch / 8)), 5),
            round(
                loss
                * (
                    1
                    + 1.2 * (math.exp(-min(epoch, best) / 7) - math.exp(-best / 7))
                    + 0.003 * max(epoch - best, 0)
                ),
                5,
            ),
            1e-3 * 0.999**epoch,
            round(pace * epoch, 4),
        )
        for epoch in range(1, epochs + 1)
    ]


def _plausible(
    params: Mapping[str, Any], *, number: int, seed: int, converged: bool, pace: float
) -> TrialResult:
    """Wider networks and smaller batches forecast better and take longer: enough for a front."""
    distance = abs(math.log10(params["learning_rate"]) + 3.0)
    epochs = 200 if not converged else 20 + round(10 * distance) + number % 5
    width, dropout = params.get("hidden_size", 64), params.get("dropout", 0.1)
    s_per_epoch = round(pace * (0.02 + 8.0 / params["batch_size"] + width / 400), 4)
    mql = round(0.8 + 0.05 * distance**2 + 0.1 * dropout + 12 / width, 4)
    attributes = {
        "stopped_by": "converged" if converged else "epoch_limit",
        "converged": converged,
        "epochs": epochs,
        "best_epoch": epochs - 10 if converged else epochs,
        "total_s": round(epochs * s_per_epoch + 0.3, 4),
        "val_loss": round(mql / 4, 4),
        "val_mql": mql,
        "s_per_epoch": s_per_epoch,
        "setup_s": 0.1,
        "backend": "eager",
        "precision": "fp32",
        "seed": seed,
        "contaminated": False,
        "device": DEVICE,
        "device_label": "cores 0, 1",
        "versions": {"tuner": "0.1.0"},
    }
    return TrialResult(
        TrialState.COMPLETE, (round(epochs * s_per_epoch, 4), mql), Recorded.from_flat(attributes)
    )


def record_group(storage: str, *, variant: str, searches: int, trials: int = 12) -> list[str]:
    """The same for independent searches of a variant, a group called `demo-<variant>`; their
    names."""
    group = f"demo-{variant}"
    names = [name_of_search(group, number) for number in range(1, searches + 1)]
    for number, name in enumerate(names, 1):
        place = Membership.of_new(name, group=group, search=number)
        record_study(storage, variant=variant, name=name, trials=trials, membership=place)
    return names
