"""What a study has found: its finished trials as plain records, and their Pareto front."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from tuner.config import OBJECTIVES
from tuner.pareto import Point, front_indices, hypervolume, reference_point
from tuner.record import Recorded
from tuner.spec.objectives import limits_in_words, violations
from tuner.spec.policy import SearchPolicy
from tuner.study.open import OpenStudy

FIRST_CLOCK = 1
"""The version of the clock before records named it."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial: true parameter values, objective values (complete trials only) and what was
    recorded with it.
    """

    number: int
    state: TrialState
    params: dict[str, float | int]
    values: Point | None
    recorded: Recorded
    started: str | None
    ended: str | None
    objectives: tuple[str, ...] = OBJECTIVES
    """Names of the values."""
    feasible: bool = True
    """False when a finished trial is beyond a limit of the study's policy, as of `--max-time`."""

    @property
    def converged(self) -> bool:
        return bool(self.recorded.converged)

    @property
    def is_default(self) -> bool:
        return bool(self.recorded.default)

    @property
    def place(self) -> str:
        """Host and device that ran it, e.g. `node3,
        NVIDIA H200 #1`; empty where neither was recorded.
        """
        return ", ".join(name for name in (self.recorded.host, self.recorded.device_label) if name)

    @property
    def named_values(self) -> dict[str, float] | None:
        """The objective values by their names; None unless complete."""
        return dict(zip(self.objectives, self.values, strict=True)) if self.values else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: number, parameters, named values, and how the trial ended."""
        return {
            "trial": self.number,
            "params": self.params,
            "values": self.named_values,
            "epochs": self.recorded.epochs,
            "converged": self.converged,
            "stopped_by": self.recorded.stopped_by,
            "device": self.recorded.device_label,
            "contaminated": self.recorded.contaminated,
            "default": self.is_default,
            "feasible": self.feasible,
        }


@dataclass(frozen=True, slots=True)
class StudyResults:
    """All trials of a study at one moment."""

    records: tuple[TrialRecord, ...]
    objectives: tuple[str, ...] = OBJECTIVES
    limits: str = ""
    """The limits of the study's policy in words; empty where it has none."""

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        return tuple(
            record
            for record in self.records
            if record.state == TrialState.COMPLETE and record.values
        )

    @property
    def default(self) -> TrialRecord | None:
        """The first complete trial of the default configuration; None while there is none."""
        return next((record for record in self.complete if record.is_default), None)

    @property
    def eligible(self) -> tuple[TrialRecord, ...]:
        """Trials that may stand on the front: converged ones within the study's limits.

        Where none is within the limits, all converged ones (`infeasible` is then true); where none
        converged, the complete ones (`censored` is then true).
        """
        converged = tuple(record for record in self.complete if record.converged) or self.complete
        return tuple(record for record in converged if record.feasible) or converged

    @property
    def infeasible(self) -> bool:
        """True when there are trials for the front, and none of them keeps the study's limits."""
        return bool(self.eligible) and not any(record.feasible for record in self.eligible)

    @property
    def censored(self) -> bool:
        """True when nothing converged: the front's times
        are where a limit cut the training, not convergence.
        """
        return bool(self.complete) and not any(record.converged for record in self.complete)

    @property
    def clocks(self) -> tuple[int, ...]:
        """Versions of the clock that timed the trials which the front is made of."""
        return tuple(sorted({clock_of(record.recorded) for record in self.eligible}))

    @property
    def clocks_differ(self) -> str:
        """Where it was not one and the same: a sentence that says so; empty where it was."""
        return clocks_in_words(self.clocks)

    @property
    def front(self) -> tuple[TrialRecord, ...]:
        """The non-dominated trials, fastest first."""
        eligible = self.eligible
        return tuple(eligible[i] for i in front_indices(self.points))

    @property
    def points(self) -> list[Point]:
        return [record.values for record in self.eligible if record.values]

    @property
    def reference(self) -> Point | None:
        return reference_point(self.points) if self.points else None

    @property
    def hypervolume(self) -> float | None:
        """Relative to one tenth beyond the worst of these trials; None before the first."""
        reference = self.reference
        return hypervolume(self.points, reference) if reference else None

    @property
    def missed(self) -> int:
        """How many trials never reached the registered validation loss, and so have no time."""
        return sum(bool(record.recorded.target_missed) for record in self.records)

    def of_state(self, *states: TrialState) -> int:
        return sum(record.state in states for record in self.records)


def clock_of(recorded: Recorded) -> int:
    """The version of the clock that timed it: the first one where it names none."""
    return recorded.clock_version or FIRST_CLOCK


def clocks_in_words(clocks: Iterable[int]) -> str:
    """That times are of several versions of the clock; empty where they are of one."""
    versions = [str(version) for version in clocks]
    if len(versions) <= 1:
        return ""
    return (
        f"Times on this front are of versions {' and '.join(versions)} of the clock, "
        "which differ for that alone (docs/the-clock.md)."
    )


def read_results(opened: OpenStudy) -> StudyResults:
    """Read the study's trials from the database."""
    policy, objectives = opened.policy(), opened.definition.objectives
    records = (record_of(trial, objectives) for trial in opened.optuna.get_trials(deepcopy=False))
    return judged(records, objectives, policy)


def judged(
    records: Iterable[TrialRecord], objectives: tuple[str, ...], policy: SearchPolicy
) -> StudyResults:
    """`records` as a study's results under the limits of `policy`:
    each is marked feasible or not.
    """

    def feasible(record: TrialRecord) -> bool:
        if record.values is None:
            return True
        return all(
            excess <= 0 for excess in violations(policy, record.values, record.recorded).values()
        )

    marked = (dataclasses.replace(record, feasible=feasible(record)) for record in records)
    return StudyResults(tuple(marked), objectives, limits_in_words(policy, objectives))


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
