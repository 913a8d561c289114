"""A worker prunes: from finished curves in the database to a PRUNED trial that counts and says
why."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.support.small_study import definition
from tests.support.stand_in_training import Training, epoch_record
from tuner.devices import CpuCores
from tuner.report.study_status import status_of
from tuner.search.bounds import FinishedTrial, Stopping
from tuner.search.pruning import Pruner
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.results import StudyResults, TrialRecord, read_results, record_of
from tuner.trial.job import Watched
from tuner.worker.loop import Worker
from tuner.worker.trial_source import StudyPruning
from tuner.worker.work_source import RunningTrial

PRUNED_OF = 48
TRAINED_OF = 56
STOPPING = Stopping(patience=10, min_delta=1e-5, max_epochs=60)


@dataclass(frozen=True)
class Searched:
    """A study that was searched with pruning first, and then without."""

    study: OpenStudy
    results: StudyResults
    statements: list[str]
    """SQL between the beginning and the end of an epoch, pruned ones among them."""

    def pruned(self) -> list[TrialRecord]:
        return [record for record in self.results.records if record.state is TrialState.PRUNED]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    database = open_database(parse_url(f"sqlite:///{tmp_path_factory.mktemp('pruning')}/tuner.db"))
    study = create_or_resume(database, "small", definition(max_epochs=60), trials=PRUNED_OF)
    training = Training(database.engine, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningTrial, "deliver", _deliver_at_the_end)
        for trials, prune in ((PRUNED_OF, True), (TRAINED_OF, False)):
            study.ledger.set_budget(trials)
            study.set_policy(SearchPolicy(sampler="random", seed=1, prune=prune))
            Worker([study], CpuCores((0,)), training).run()
    yield Searched(study, read_results(study), training.statements)
    database.close()


_deliver = RunningTrial.deliver


def _deliver_at_the_end(self: RunningTrial) -> None:
    """Epochs are written once a second: not while SQL is counted."""
    if sys._getframe(1).f_code.co_name != "on_epoch":
        _deliver(self)


def test_pruned_trials_count_and_say_why(searched: Searched) -> None:
    found = searched.pruned()
    assert len(found) >= 3
    by_number = {record.number: record for record in searched.results.records}
    for record in found:
        a = record.recorded.to_flat()
        by = by_number[a["pruned_dominated_by"]]
        assert by.values is not None
        assert by.converged
        assert by.values[0] <= a["pruned_optimistic_s"]
        assert by.values[1] <= a["pruned_optimistic_mql"]
        assert a["stopped_by"] == "pruned"
        assert f"as of epoch {a['epochs']}, dominated by trial {by.number} " in a["failure"]
        assert (
            a["pruned_at_epoch"]
            == a["epochs"]
            == len(searched.study.epochs.of_trial(record.number))
        )
    assert not any(record.is_default for record in found)


def test_pruned_trials_are_told_apart_in_the_status_and_fill_the_budget(searched: Searched) -> None:
    trials = status_of(searched.study)["trials"]
    assert trials["pruned"] == len(searched.pruned())
    assert trials["complete"] == TRAINED_OF - trials["pruned"]
    counts = searched.study.ledger.counts()
    assert (counts.finished, counts.running, counts.budget) == (TRAINED_OF, 0, TRAINED_OF)


def test_pruning_ends_when_the_study_is_told_so(searched: Searched) -> None:
    assert all(record.number < PRUNED_OF for record in searched.pruned())
    others = [record for record in searched.results.records if record.number >= PRUNED_OF]
    would = Pruner(_finished_trials(searched), STOPPING)
    assert any(_judged(would, searched, record) for record in others), (
        "none of these would have been pruned anyway"
    )


def test_judging_an_epoch_asks_no_database(searched: Searched) -> None:
    assert searched.statements == []


def _finished_trials(searched: Searched) -> list[FinishedTrial]:
    return StudyPruning(searched.study).finished(SearchPolicy())


def _judged(pruner: Pruner, searched: Searched, record: TrialRecord) -> bool:
    losses, elapsed_s = _series(searched.study.epochs.of_trial(record.number))
    return any(pruner.verdict(losses[:epoch], elapsed_s[:epoch]) for epoch in range(1, len(losses)))


def _series(rows: tuple[EpochRow, ...]) -> tuple[list[float], list[float]]:
    """Validation losses and times."""
    return [row.val_loss or 0.0 for row in rows], [row.elapsed_s for row in rows]


def test_a_finished_trial_is_read_once_however_many_trials_come_after_it(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noted(trial: FrozenTrial, definition: StudyDefinition) -> TrialRecord:
        read.append(trial.number)
        return record_of(trial, definition)

    monkeypatch.setattr("tuner.worker.trial_source.record_of", noted)
    pruning, policy = StudyPruning(searched.study), SearchPolicy()
    first = pruning.finished(policy)
    assert (
        read
        == [trial.number for trial in first]
        == [record.number for record in searched.results.complete]
    )
    assert pruning.finished(policy) == first
    assert len(read) == len(first)


def test_finished_trials_are_judged_by_the_limits_of_now(searched: Searched) -> None:
    pruning, policy = StudyPruning(searched.study), SearchPolicy()
    without = pruning.finished(policy)
    slowest = max(trial.values[0] for trial in without if trial.dominates)
    limited = pruning.finished(SearchPolicy(max_time_s=0.5 * slowest))
    assert [trial.number for trial in limited] == [trial.number for trial in without]
    assert any(trial.dominates for trial in limited)
    for trial, before in zip(limited, without, strict=True):
        assert trial.dominates == (before.dominates and trial.values[0] <= 0.5 * slowest)
    assert pruning.finished(policy) == without


def test_the_default_is_not_watched_and_neither_is_anything_before_enough_have_finished(
    searched: Searched,
) -> None:
    pruning, policy = StudyPruning(searched.study), SearchPolicy(prune=True)
    default, other = searched.study.optuna.get_trials(deepcopy=False)[:2]
    assert pruning.watch(default, policy) is None
    assert pruning.watch(other, policy) is not None
    assert pruning.watch(other, SearchPolicy(prune=False)) is None


@pytest.mark.parametrize(
    ("sampler", "said", "watched"),
    [
        ("auto", None, False),
        ("kg", None, False),
        ("kg", True, True),
        ("tpe", None, True),
        ("tpe", False, False),
    ],
)
def test_a_sampler_that_repeats_prunes_only_where_somebody_says_so(
    searched: Searched, sampler: str, said: bool | None, watched: bool
) -> None:
    _, other = searched.study.optuna.get_trials(deepcopy=False)[:2]
    policy = SearchPolicy(sampler=sampler, prune=said)
    assert (StudyPruning(searched.study).watch(other, policy) is not None) == watched


def test_a_trial_that_repeats_a_complete_one_is_not_watched(searched: Searched) -> None:
    pruning, policy = StudyPruning(searched.study), SearchPolicy(prune=True)
    trials = searched.study.optuna.get_trials(deepcopy=False)
    for state, watched in ((TrialState.COMPLETE, False), (TrialState.PRUNED, True)):
        first = next(t for t in trials[1:] if t.state is state)
        repeat = create_trial(params=first.params, distributions=first.distributions, value=0.0)
        repeat.number = len(trials)
        assert (pruning.watch(repeat, policy) is not None) == watched


def test_an_epoch_that_was_not_validated_ends_no_trial_and_the_next_one_may(
    searched: Searched,
) -> None:
    pruner = Pruner(_finished_trials(searched), STOPPING)
    curves = [searched.study.epochs.of_trial(record.number) for record in searched.results.records]
    rows = next(rows for rows in curves if len(rows) > 1 and pruner.verdict(*_series(rows)))
    every, seldom = Watched(pruner), Watched(pruner)
    *before, last = rows
    seldom.remember(dataclasses.replace(row, val_loss=None) for row in before[:1])
    seldom.remember(before[1:])
    assert last.val_loss is not None
    epoch = epoch_record(last.epoch, last.val_loss, last.learning_rate, last.elapsed_s)
    assert seldom.judge(dataclasses.replace(epoch, val_loss=None), 0) is None
    assert seldom.judge(epoch, 0) is not None
    every.remember(before)
    assert every.judge(epoch, 0) is not None


def test_a_trial_that_goes_on_from_a_checkpoint_is_judged_with_the_epochs_it_had(
    searched: Searched,
) -> None:
    pruner = Pruner(_finished_trials(searched), STOPPING)
    curves = [searched.study.epochs.of_trial(record.number) for record in searched.results.records]
    rows = next(rows for rows in curves if len(rows) > 1 and pruner.verdict(*_series(rows)))
    last = rows[-1]
    assert last.val_loss is not None
    epoch = epoch_record(last.epoch, last.val_loss, last.learning_rate, last.elapsed_s)
    fresh, resumed = Watched(pruner), Watched(pruner)
    resumed.remember(rows[:-1])
    assert fresh.judge(epoch, 0) is None, "without the epochs before it nothing is known"
    assert resumed.judge(epoch, 0) is not None
