"""What a study has found: its finished trials as plain records, the configurations that these are
of, and their Pareto front.

A study may hold several trials of one configuration, each with its own seed. The front is of
configurations: of single runs it would be that of the luckiest ones.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from tuner.config import OBJECTIVES, StopReason, Value
from tuner.files import kinds
from tuner.files.kinds import OverSeeds
from tuner.files.plain import in_json
from tuner.record import MEANINGS, SCORES, Recorded
from tuner.search.history import Configuration, configuration
from tuner.spec.definition import StudyDefinition
from tuner.spec.objectives import limits_in_words, violations
from tuner.spec.pareto import Point, front_indices, hypervolume, reference_point
from tuner.spec.policy import SearchPolicy
from tuner.storage.records import money
from tuner.study.baselines import ATTRIBUTE, Scored, Worth, read, worth
from tuner.study.open import OpenStudy

__all__ = ["StudyResults", "TrialRecord", "judged", "read_results", "record_of"]


# What was recorded of several runs of one configuration, as if they were one: of several seeds of
# a trial, and of several trials.


def over_runs(runs: Sequence[Recorded]) -> Recorded:
    """What each thing of the last run's record comes to over all runs."""
    last = runs[-1]
    found: dict[str, Any] = {}
    for name, meaning in MEANINGS.items():
        values = [getattr(run, name) for run in runs]
        if values[-1] is not None:
            found[name] = _COME_TO[meaning.over_seeds](values)
    for name in SCORES:
        found[name] = {
            series: _median([getattr(run, name).get(series) for run in runs])
            for series in getattr(last, name)
        }
    return dataclasses.replace(last, **found)


def _median(values: Sequence[Any]) -> Any:
    """Of counts, one that occurred; the last where a run has none."""
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return statistics.median_low(values)
    return statistics.median(values) if kinds <= {int, float} else values[-1]


_COME_TO: Mapping[OverSeeds, Callable[[Sequence[Any]], Any]] = {
    OverSeeds.MEDIAN: _median,
    OverSeeds.MIN: lambda values: min(each for each in values if each is not None),
    OverSeeds.MAX: lambda values: max(each for each in values if each is not None),
    OverSeeds.ANY: any,
    OverSeeds.ALL: all,
    OverSeeds.FIRST: lambda values: values[0],
    OverSeeds.LAST: lambda values: values[-1],
    OverSeeds.JOINED: lambda values: "; ".join(each for each in values if each),
}


# One trial of a study as a plain record.


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial: true parameter values, objective values (complete trials only) and what was
    recorded with it. Or all trials of one configuration as if they were one.
    """

    number: int
    state: TrialState
    params: Mapping[str, Value]
    values: Point | None
    recorded: Recorded
    started: str | None
    ended: str | None
    objectives: tuple[str, ...] = OBJECTIVES
    """Names of the values."""
    feasible: bool = True
    """False when a finished trial is beyond a limit of the study's policy, as of `--max-time`."""
    cost: float | None = None
    """Of the time that it had its devices, at the price in the study's policy; None without one,
    and until it has ended."""
    trials: tuple[TrialRecord, ...] = ()
    """Where it speaks of a configuration of which several trials ended: those with values, by
    their numbers (`tuner.study.results`). Empty of what is one trial."""

    @property
    def each_trial(self) -> tuple[TrialRecord, ...]:
        """The trials with values that it speaks of; of one trial that itself."""
        return self.trials or (self,)

    @property
    def runs(self) -> int:
        """How many trials the values are medians of."""
        return len(self.each_trial)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those of these trials."""
        return tuple(each.number for each in self.each_trial)

    @property
    def runs_in_words(self) -> str:
        """`4 runs`; empty of one, which needs no word."""
        return f"{self.runs} runs" if self.runs > 1 else ""

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

    @property
    def plain(self) -> dict[str, Any]:
        """What a table has cells for: all that was recorded and is no list or table, and the cost,
        where there is a price.
        """
        flat = self.recorded.to_flat().items()
        found = {name: value for name, value in flat if not isinstance(value, dict | list)}
        return found if self.cost is None else found | {"cost": self.cost}

    def as_dict(self) -> dict[str, Any]:
        """For JSON: number, parameters, named values, and how the trial ended; of several trials
        also how many, and which.
        """
        plain: dict[str, Any] = {
            **in_json(self, trial="number", params="params", values="named_values"),
            **in_json(self.recorded, "epochs", "stopped_by", "contaminated", device="device_label"),
            **in_json(self.recorded, "energy_j", "energy_unresolved"),
            **in_json(self, "converged", "feasible", "cost", default="is_default"),
        }
        if self.runs > 1:
            plain |= {"runs": self.runs, "trials": list(self.numbers)}
        return plain


# The configurations of a study's trials: several trials of one, each with its own seed, are one
# point of the study.


_OF_TIME = frozenset(
    name
    for name, meaning in MEANINGS.items()
    if meaning.kind in (kinds.SECONDS, kinds.SECONDS_EACH, kinds.RATE, kinds.JOULES)
) | {"contaminated", "contamination", "energy_unresolved"}
"""What is of the runs alone whose timing nothing disturbed, where there are such."""
_MISSES = (StopReason.DIVERGED, StopReason.OUT_OF_MEMORY)
"""Ends without values that speak against the configuration. An error may be anything, and who was
pruned or set aside was not trained to its end."""


def configurations(records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Each configuration that has a complete trial, in the order of these.

    A configuration with one trial is that trial, unchanged. One with several has the medians of
    their values, and stands under the number of the first that converged, as in
    `tuner.verdict.known_runs`. It converged if all its trials did: who trains it next may be as
    unlucky as the one that did not, and the median of the others does not say so. A run of a
    verification that missed counts alike.
    """
    groups: dict[Configuration | int, list[TrialRecord]] = {}
    missed: dict[Configuration | int, list[TrialRecord]] = {}
    for record in records:
        # Of a trial without parameters nothing says that it repeats another.
        key = configuration(record.params) if record.params else record.number
        if record.state == TrialState.COMPLETE and record.values:
            groups.setdefault(key, []).append(record)
        elif is_miss(record.state, record.recorded):
            missed.setdefault(key, []).append(record)
    return tuple(_as_one(trials, missed.get(key, ())) for key, trials in groups.items())


def is_miss(state: TrialState, recorded: Recorded) -> bool:
    """Whether a trial, or a verification run, ended without values for a reason that is the
    configuration's own.
    """
    failed = state == TrialState.FAIL and recorded.stopped_by in _MISSES
    return failed or bool(recorded.target_missed)


def median_values(trials: Sequence[TrialRecord]) -> Point:
    """Medians of the trials' seconds and MQL. A disturbed timing counts where there is no other."""
    seconds = [trial.values[0] for trial in _timed(trials) if trial.values]
    mql = [trial.values[1] for trial in trials if trial.values]
    return float(statistics.median(seconds)), float(statistics.median(mql))


def _as_one(trials: Sequence[TrialRecord], missed: Sequence[TrialRecord]) -> TrialRecord:
    """The complete trials of one configuration, of which others `missed`."""
    if len(trials) == 1 and not missed:
        return trials[0]
    trials = sorted(trials, key=lambda trial: trial.number)
    first = next((trial for trial in trials if trial.converged), trials[0])
    ended = [trial.ended for trial in trials if trial.ended is not None]
    return dataclasses.replace(
        first,
        values=median_values(trials),
        recorded=_recorded(trials, missed),
        started=min((t.started for t in trials if t.started is not None), default=None),
        ended=max(ended, default=None),
        trials=tuple(trials),
    )


def _recorded(trials: Sequence[TrialRecord], missed: Sequence[TrialRecord]) -> Recorded:
    found = over_runs([trial.recorded for trial in trials])
    clean, times = _timed(trials), {}
    if len(clean) < len(trials):
        timed = over_runs([trial.recorded for trial in clean])
        times = {name: getattr(timed, name) for name in _OF_TIME}
    cut = next((t for t in (*trials, *missed) if not t.converged), None)
    # What is kept of each seed's training stays with its trial.
    own: dict[str, Any] = {"runs": None, "timings": None, "seeds": None}
    own["default"] = any(trial.is_default for trial in (*trials, *missed)) or None
    if cut is not None:
        own |= {"converged": False, "stopped_by": cut.recorded.stopped_by}
    return dataclasses.replace(found, **times, **own)


def _timed(trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    return [trial for trial in trials if not trial.recorded.contaminated] or trials


_NO_LIMITS = SearchPolicy()


@dataclass(frozen=True)  # without slots, so that what is found once is kept
class StudyResults:
    """All trials of a study at one moment."""

    records: tuple[TrialRecord, ...]
    objectives: tuple[str, ...] = OBJECTIVES
    policy: SearchPolicy = _NO_LIMITS
    """Whose limits the trials are held against."""
    baselines: tuple[Scored, ...] = ()
    """What forecasts without a network come to; empty where none was scored."""

    @property
    def best(self) -> TrialRecord | None:
        """The one of the front's lowest MQL; None without a front."""
        there = [each for each in self.front if each.values]
        return min(there, key=lambda each: each.values[1] if each.values else 0.0, default=None)

    def worth(self, record: TrialRecord | None, whose: str) -> Worth | None:
        """Whether training this configuration is worth it, by the study's objective."""
        if record is None or record.values is None:
            return None
        runs, error = record.recorded.mql_runs or (), self.objectives[1]
        return worth(record.values[1], runs, self.baselines, whose, error=error)

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

    @property
    def cost(self) -> float | None:
        """Of all trials that have ended, at the policy's price; None without one."""
        known = [each.cost for each in self.records if each.cost is not None]
        return None if self.policy.price_per_gpu_hour is None else sum(known)

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
    policy, definition = opened.policy(), opened.definition
    trials = opened.optuna.get_trials(deepcopy=False)
    records = (record_of(trial, definition) for trial in trials)
    baselines = read(opened.optuna.user_attrs.get(ATTRIBUTE, []))
    return judged(records, definition.objectives, policy, baselines)


def judged(
    records: Iterable[TrialRecord],
    objectives: tuple[str, ...],
    policy: SearchPolicy,
    baselines: tuple[Scored, ...] = (),
) -> StudyResults:
    """`records` as a study's results under the limits of `policy`:
    each is marked feasible or not, and what it cost.
    """
    found = tuple(_judged(each, policy) for each in records)
    return StudyResults(found, objectives, policy, baselines)


def _judged(record: TrialRecord, policy: SearchPolicy) -> TrialRecord:
    beyond = violations(policy, record.values, record.recorded).values() if record.values else ()
    price, cost = policy.price_per_gpu_hour, None
    if price is not None and record.state.is_finished():
        cost = statistics.median(money(each.recorded, price) for each in record.each_trial)
    return dataclasses.replace(record, feasible=all(excess <= 0 for excess in beyond), cost=cost)


def record_of(trial: FrozenTrial, definition: StudyDefinition) -> TrialRecord:
    """A trial as Optuna has it, not yet judged: see `judged`."""
    values = (
        (float(trial.values[0]), float(trial.values[1]))
        if trial.state == TrialState.COMPLETE
        else None
    )
    return TrialRecord(
        number=trial.number,
        state=trial.state,
        params=definition.space.true(trial.params),
        values=values,
        recorded=getattr(trial, "recorded", None) or Recorded.from_flat(trial.user_attrs),
        started=_in_utc(trial.datetime_start),
        ended=_in_utc(trial.datetime_complete),
        objectives=definition.objectives,
    )


def _in_utc(moment: datetime | None) -> str | None:
    """Without saying so. Optuna shows local time, and does not say that."""
    if moment is None:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()
