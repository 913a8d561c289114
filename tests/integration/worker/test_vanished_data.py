"""Data that is mapped from a file, which vanishes in the middle of a training."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from optuna.trial import TrialState
from torch import Tensor

from tests.support.small_study import definition
from tuner.data import prepare as preparing
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import Rows, StreamedSplit
from tuner.devices import CpuCores
from tuner.errors import DataGoneError
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.worker.session import InThisProcess, Trainer, WorkOrder, work
from tuner.worker.trainer import Told, TrainerProcess

TOML = """
name = "own"
target_columns = ["a", "b"]
frequency = "h"
input_size = 8
horizon = 2
quantiles = [0.1, 0.5, 0.9]

[source]
kind = "parquet"
path = "own.parquet"
"""
CORES = CpuCores((0,))


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """A worker has its own handlers, for as long as its process lives."""
    kept = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a file that counts as large."""
    monkeypatch.setattr(preparing, "LARGE_CELLS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    values = np.random.default_rng(0).standard_normal((300, 2))
    times = pd.date_range("2024-01-01", periods=300, freq="h")
    frame = pd.DataFrame({"ds": times, "a": values[:, 0], "b": values[:, 1]})
    frame.to_parquet(tmp_path / "own.parquet")
    (tmp_path / "own.toml").write_text(TOML, encoding="utf-8")
    return tmp_path / "own.toml"


@pytest.fixture
def study(task: Path, tmp_path: Path) -> Iterator[OpenStudy]:
    """Of one trial."""
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    given = load_task(str(task))
    hashed = definition(task=given.definition(), data_hash=prepare(given).data_hash, max_epochs=3)
    opened = create_or_resume(database, "own", hashed, trials=1)
    opened.set_policy(SearchPolicy(sampler="random"))
    yield opened
    database.close()


def maps_of(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").rglob("*.maps"))


def worked(task: Path, trainer: Trainer) -> int:
    url = f"sqlite:///{task.parent}/tuner.db"
    return work(WorkOrder(studies="own", storage=url, task=str(task)), CORES, trainer)


def vanishes(task: Path) -> None:
    for place in maps_of(task.parent):
        place.rename(task.parent / "elsewhere")


def check_handed_back_and_trained_later(
    study: OpenStudy, task: Path, make: Callable[[], Trainer]
) -> None:
    with pytest.raises(DataGoneError) as gone:
        worked(task, make())
    assert "train.npy: is gone while it is trained on" in str(gone.value)
    assert "\n" not in str(gone.value)
    (trial,) = study.optuna.get_trials()
    assert trial.state is TrialState.WAITING
    assert worked(task, make()) == 0
    (trial,) = study.optuna.get_trials()
    assert trial.state is TrialState.COMPLETE
    assert "from a memory-mapped file" in trial.user_attrs["data_streamed"]
    states = [each.state for each in study.ledger.attempts(0)]
    assert states == ["returned", "finished"], "it is not held against the trial"
    assert maps_of(task.parent), "made again"


def test_the_trial_is_handed_back_and_trains_when_the_data_is_there_again(
    study: OpenStudy, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, left = StreamedSplit.rows_of, [6]

    def vanishing(split: StreamedSplit, starts: Tensor) -> Rows:
        left[0] -= 1
        if left[0] == 0:
            vanishes(task)
        return read(split, starts)

    monkeypatch.setattr(StreamedSplit, "rows_of", vanishing)
    check_handed_back_and_trained_later(study, task, lambda: InThisProcess(CORES))


def test_so_it_is_where_another_process_trains(
    study: OpenStudy, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear, epochs = TrainerProcess._heard, [0]

    def heard(trainer: TrainerProcess, give_up: Callable[[], bool]) -> object:
        said = hear(trainer, give_up)
        if isinstance(said, Told) and said.name == "on_epoch":  # it waits for an answer
            epochs[0] += 1
            if epochs[0] == 1:
                vanishes(task)
        return said

    monkeypatch.setattr(TrainerProcess, "_heard", heard)
    check_handed_back_and_trained_later(study, task, lambda: TrainerProcess(CORES, None))
