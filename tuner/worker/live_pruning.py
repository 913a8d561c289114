"""Pruning as a worker prepares it: finished curves are read between trials."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from optuna.trial import FrozenTrial, TrialState

from tuner.record import Recorded
from tuner.search.bounds import FinishedTrial, Stopping
from tuner.search.history import Configuration, configuration
from tuner.search.methods import prunes
from tuner.search.pruning import Pruner
from tuner.search.validated import carried_on
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, judged, record_of
from tuner.trial.watched import Watched

_log = logging.getLogger(__name__)


class StudyPruning:
    """What a worker knows of the finished trials of one study: each is read once, for what has
    finished never changes.

    So what is read before a trial does not grow with the study.
    """

    def __init__(self, opened: OpenStudy) -> None:
        self._opened = opened
        self._curves: dict[int, tuple[tuple[float, ...], ...]] = {}
        self._finished: dict[int, FinishedTrial] = {}
        self._ran: dict[int, Configuration] = {}
        """Of the complete trials."""
        self._policy: SearchPolicy | None = None
        """Under whose limits they are feasible or not."""

    def watch(self, trial: FrozenTrial, policy: SearchPolicy) -> Watched | None:
        """The watch over a trial that is about to start; None when it is not to be pruned.

        The default configuration never is: everything is measured against it. Nor is one that
        repeats a complete trial: it is there for the mean, which would miss its slow and bad runs.
        A database that is away is no reason to wait: the trial is then trained to its end.
        """
        if not prunes(policy.sampler, policy.prune) or Recorded.from_flat(trial.user_attrs).default:
            return None
        definition = self._opened.definition
        training = definition.training
        try:
            pruner = Pruner(
                self.finished(policy),
                Stopping(
                    # A program stops by a rule of its own: it may end with any epoch.
                    patience=training.patience if definition.program is None else 0,
                    min_delta=training.min_delta,
                    max_epochs=training.max_epochs,
                ),
                time_objective=definition.objectives[0],
                target_val_loss=definition.target_val_loss,
                seeds=definition.seeds_per_trial,
            )
            if not pruner.ready or self._repeats(trial):
                return None
            pruner.look_up()  # here, where nothing is timed
            watched = Watched(pruner)
            watched.remember(self._opened.epochs.of_trial(trial.number))
        except DATABASE_FAILURES:
            _log.warning("the database is away; trial %d will not be pruned", trial.number)
            return None
        return watched

    def _repeats(self, trial: FrozenTrial) -> bool:
        """Whether another trial of its configuration is complete."""
        mine = configuration(trial.params)
        return any(number != trial.number and mine == ran for number, ran in self._ran.items())

    def finished(self, policy: SearchPolicy) -> list[FinishedTrial]:
        """The complete trials with their curves, up to now, under the limits of `policy`."""
        if policy != self._policy:
            self._finished, self._policy = {}, policy
        complete = self._opened.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        objectives = self._opened.definition.objectives
        fresh = [
            record_of(trial, objectives) for trial in complete if trial.number not in self._finished
        ]
        records = judged(fresh, objectives, policy).complete
        self._ran.update((record.number, configuration(record.params)) for record in records)
        without = [record.number for record in records if record.number not in self._curves]
        if without:
            rows = self._opened.epochs.of_trials(without)
            self._curves.update({number: _curves(rows.get(number, ())) for number in without})
        self._finished.update(
            {
                record.number: finished_trial(record, self._curves[record.number])
                for record in records
            }
        )
        return [self._finished[number] for number in sorted(self._finished)]


def finished_trial(record: TrialRecord, curves: tuple[tuple[float, ...], ...]) -> FinishedTrial:
    """A complete trial, with the validation losses of each of its seeds, as the pruner takes it."""
    assert record.values is not None, "a complete trial has values"
    dominates = record.converged and record.feasible
    return FinishedTrial(
        number=record.number, values=record.values, curves=curves, dominates=dominates
    )


def _curves(rows: Iterable[EpochRow]) -> tuple[tuple[float, ...], ...]:
    """The validation losses of a trial's epochs, one curve for each of its seeds."""
    by_seed: dict[int, list[float | None]] = {}
    for row in rows:
        by_seed.setdefault(row.repeat, []).append(row.val_loss)
    curves = [carried_on(losses) for losses in by_seed.values()]
    return tuple(curve for curve in curves if curve)
