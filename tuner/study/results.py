"""What a study has found: its finished trials as plain records, the configurations that these are
of, and their Pareto front.

A study may hold several trials of one configuration, each with its own seed. The front is of
configurations: of single runs it would be that of the luckiest ones.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from tuner.config import OBJECTIVES
from tuner.pareto import Point, front_indices, hypervolume, reference_point
from tuner.record import Recorded
from tuner.spec.objectives import limits_in_words, violations
from tuner.spec.policy import SearchPolicy
from tuner.study.configurations import configurations
from tuner.study.open import OpenStudy
from tuner.study.trial_record import TrialRecord

__all__ = [
    "StudyResults",
    "TrialRecord",
    "judged",
    "read_results",
    "record_of",
]

_NO_LIMITS = SearchPolicy()


@dataclass(frozen=True)  # without slots, so that what is found once is kept
class StudyResults:
    """All trials of a study at one moment."""

    records: tuple[TrialRecord, ...]
    objectives: tuple[str, ...] = OBJECTIVES
    policy: SearchPolicy = _NO_LIMITS
    """Whose limits the trials are held against."""

    @property
    def limits(self) -> str:
        """The limits of the study's policy in words; empty where it has none."""
        return limits_in_words(self.policy, self.objectives)

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        """Every complete trial, also those of one configuration."""
        return tuple(
            record
            for record in self.records
            if record.state == TrialState.COMPLETE and record.values
        )

    @functools.cached_property
    def configurations(self) -> tuple[TrialRecord, ...]:
        """Each configuration with a complete trial, once: that trial, or the medians of several
        under the number of the first.
        """
        found = configurations(self.records)
        return tuple(_judged(each, self.policy) if each.trials else each for each in found)

    @property
    def contaminated(self) -> int:
        """Of how many complete trials something else disturbed the timing."""
        return sum(bool(record.recorded.contaminated) for record in self.complete)

    def configuration_of(self, number: int) -> TrialRecord | None:
        """The configuration of the complete trial of that number; None where there is none."""
        return next((c for c in self.configurations if number in c.numbers), None)

    @property
    def repeated(self) -> bool:
        """Whether some configuration has several trials."""
        return any(each.runs > 1 for each in self.configurations)

    @property
    def default(self) -> TrialRecord | None:
        """The default configuration, under its first complete trial; None while it has none."""
        return next((each for each in self.configurations if each.is_default), None)

    @property
    def eligible(self) -> tuple[TrialRecord, ...]:
        """Configurations that may stand on the front: those of which every run converged, within
        the study's limits.

        Where none is within the limits, all that converged (`infeasible` is then true); where none
        converged, all with a complete trial (`censored` is then true).
        """
        there = self.configurations
        converged = tuple(each for each in there if each.converged) or there
        return tuple(each for each in converged if each.feasible) or converged

    @property
    def infeasible(self) -> bool:
        """True when there is something for the front, and none of it keeps the study's limits."""
        return bool(self.eligible) and not any(each.feasible for each in self.eligible)

    @property
    def censored(self) -> bool:
        """True when nothing converged: the front's times
        are where a limit cut the training, not convergence.
        """
        there = self.configurations
        return bool(there) and not any(each.converged for each in there)

    @property
    def front(self) -> tuple[TrialRecord, ...]:
        """The non-dominated configurations, fastest first."""
        eligible = self.eligible
        return tuple(eligible[i] for i in front_indices(self.points))

    @property
    def on_front(self) -> frozenset[int]:
        """The numbers of all trials whose configuration stands on the front."""
        return frozenset(number for each in self.front for number in each.numbers)

    @property
    def points(self) -> list[Point]:
        return [each.values for each in self.eligible if each.values]

    @property
    def reference(self) -> Point | None:
        return reference_point(self.points) if self.points else None

    @property
    def hypervolume(self) -> float | None:
        """Relative to one tenth beyond the worst of these configurations; None before the first."""
        reference = self.reference
        return hypervolume(self.points, reference) if reference else None

    @property
    def missed(self) -> int:
        """How many trials never reached the registered validation loss, and so have no time."""
        return sum(bool(record.recorded.target_missed) for record in self.records)

    def of_state(self, *states: TrialState) -> int:
        return sum(record.state in states for record in self.records)


def read_results(opened: OpenStudy) -> StudyResults:
    """Read the study's trials from the database.

    Raises:
        StorageError: a row of it is damaged.
    """
    policy, objectives = opened.policy(), opened.definition.objectives
    trials = opened.optuna.get_trials(deepcopy=False)
    return judged((record_of(trial, objectives) for trial in trials), objectives, policy)


def judged(
    records: Iterable[TrialRecord], objectives: tuple[str, ...], policy: SearchPolicy
) -> StudyResults:
    """`records` as a study's results under the limits of `policy`:
    each is marked feasible or not.
    """
    return StudyResults(tuple(_judged(each, policy) for each in records), objectives, policy)


def _judged(record: TrialRecord, policy: SearchPolicy) -> TrialRecord:
    if record.values is None:
        return dataclasses.replace(record, feasible=True)
    beyond = violations(policy, record.values, record.recorded).values()
    return dataclasses.replace(record, feasible=all(excess <= 0 for excess in beyond))


def record_of(trial: FrozenTrial, objectives: tuple[str, ...]) -> TrialRecord:
    """A trial as Optuna has it, not yet judged: see `judged`."""
    values = (
        (float(trial.values[0]), float(trial.values[1]))
        if trial.state == TrialState.COMPLETE
        else None
    )
    return TrialRecord(
        number=trial.number,
        state=trial.state,
        params=dict(trial.params),
        values=values,
        recorded=Recorded.from_flat(trial.user_attrs),
        started=trial.datetime_start.isoformat() if trial.datetime_start else None,
        ended=trial.datetime_complete.isoformat() if trial.datetime_complete else None,
        objectives=objectives,
    )
