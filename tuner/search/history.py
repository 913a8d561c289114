"""A study as a sampler should see it: encoded parameters, something to learn from every trial.

Trials are recorded with true values (hidden_size 64, weight_decay 0), which people read and export.
Samplers work best on encoded ones (log ranges, exponents of two). A trial without values is no
blank either: one that diverged is seen as no better than the worst that finished, one that was
pruned as a middling one, else a model-based sampler would go back there for ever. All this is held
in memory; a finished trial never changes, so each is translated once, however long the history.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.config import BUILT_IN, OBJECTIVES, StopReason, Value
from tuner.record import Recorded
from tuner.search.past_runs import PastRun, Place, place_of
from tuner.spec.objectives import CONSTRAINTS, values_of
from tuner.spec.pareto import Point, front_indices
from tuner.spec.ranges import ZERO_SHARE
from tuner.spec.space import SearchSpace
from tuner.storage.optuna.private import numbered, trial_id_of

# What a sampler of Optuna reads in place of a study: trials that it is shown, translated.


NAME = "history"


class HistoryStorage(InMemoryStorage):
    """What a sampler reads: the trials it is shown, and the one that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.create_new_study([StudyDirection.MINIMIZE, StudyDirection.MINIMIZE], NAME)
        self._shown: list[FrozenTrial] = []
        self._asked: FrozenTrial | None = None

    def show(
        self, finished: Sequence[FrozenTrial], pending: Sequence[FrozenTrial], asked: FrozenTrial
    ) -> None:
        self._shown = [*finished, *pending, asked]
        self._asked = asked

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        del study_id, deepcopy
        return [trial for trial in self._shown if states is None or trial.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        assert self._asked is not None
        assert trial_id == trial_id_of(self._asked), "a sampler writes to the trial it is asked for"
        self._asked.system_attrs[key] = value


# A finished trial as a sampler sees it beside the others: each has something to teach.


@dataclass(frozen=True, slots=True)
class Seen:
    """A finished trial to learn from. `values` is None where they are the worst of the others.

    Of a pruned trial they are a bound only: its MQL is shown as no better than that of the middling
    complete trial. The bound itself lies on the front, and a model would look about it for what is
    better still.
    """

    trial: FrozenTrial
    values: Point | None
    recorded: Recorded
    place: Place
    measured: bool
    """It is complete: its values are what it came to."""

    @property
    def pruned(self) -> bool:
        return self.values is not None and self.recorded.stopped_by == StopReason.PRUNED


def filled(learnt: Sequence[Seen]) -> list[Point]:
    """The values that each of these trials is seen with beside the others."""
    known = [seen.values for seen in learnt if seen.values is not None]
    if not known:
        return []
    worst = max(value[0] for value in known), max(value[1] for value in known)
    whole = [s.values for s in learnt if s.values is not None and not s.pruned] or known
    middling = statistics.median(mql for _, mql in whole)
    found: list[Point] = []
    for seen in learnt:
        if seen.values is None:
            found.append(worst)
        elif seen.pruned:
            found.append((seen.values[0], max(seen.values[1], middling)))
        else:
            found.append(seen.values)
    return found


Violations = Callable[[Point, Recorded], dict[str, float]]
Configuration = tuple[float | str, ...]

GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, modulo 1, fill the unit interval evenly."""
_TEACHES = (StopReason.DIVERGED, StopReason.OUT_OF_MEMORY, StopReason.PRUNED)
"""Ends that say something of the configuration,
beside a complete trial; an error may be anything."""


class TrialHistory:
    """The history of one study, brought up to date before each ask."""

    def __init__(
        self,
        space: SearchSpace,
        objectives: tuple[str, ...] = OBJECTIVES,
        violations: Violations | None = None,
    ) -> None:
        self._space = space
        self._objectives = objectives
        self._distributions = space.encoded()
        self._violations = violations or (lambda _values, _recorded: {})
        self._finished: set[int] = set()
        self._learnt: list[Seen] = []
        self._configurations: set[Configuration] = set()
        self._measured: dict[Configuration, list[Point]] = defaultdict(list)
        self._set_aside: dict[Configuration, Mapping[str, Any]] = {}
        self._params: dict[Place, dict[str, Value]] = {}
        self._pending: list[FrozenTrial] = []
        self._pending_places: list[Place] = []
        self._pending_configurations: set[Configuration] = set()
        self._storage = HistoryStorage()

    @property
    def learnt(self) -> int:
        """How many finished trials a sampler can learn from."""
        return len(self._learnt) if any(seen.values for seen in self._learnt) else 0

    def update(self, trials: Iterable[FrozenTrial], *, asking: int) -> None:
        """Take in what changed since last time;
        `asking` is the number of the trial that is being asked for.
        """
        self._pending, self._pending_places = [], []
        self._pending_configurations = set()
        for trial in trials:
            if trial.number in self._finished or trial.number == asking:
                continue
            params = known_params(trial, self._space)
            if not self._space.whole(params):
                continue
            if trial.state.is_finished():
                self._finished.add(trial.number)
                self._configurations.add(configuration(params))
                self._learn(trial, params)
            else:
                self._pending_configurations.add(configuration(params))
                self._pending.append(self._translated(trial, params, TrialState.RUNNING))
                self._pending_places.append(self._place(params))

    def holds(self, params: Mapping[str, Any]) -> bool:
        """True when some trial, finished or not, has this configuration."""
        return (
            configuration(params) in self._configurations
            or configuration(params) in self._pending_configurations
        )

    def values_of(self, params: Mapping[str, Any]) -> Point | None:
        """What the complete trials of this configuration came to, in the mean; None where there is
        none.
        """
        runs = self._measured.get(configuration(params))
        if not runs:
            return None
        return statistics.fmean(s for s, _ in runs), statistics.fmean(mql for _, mql in runs)

    # -- as runs of configurations, some of which are repeated -----------------------------------

    def past_runs(self, first: int | None = None) -> list[PastRun]:
        """The trials that teach something in the order of their numbers; or the first so many of
        them, as they would be seen without the others.
        """
        learnt = sorted(self._learnt, key=lambda seen: seen.trial.number)[:first]
        return [
            PastRun(
                where=seen.place,
                seconds=values[0],
                mql=values[1],
                epochs=seen.recorded.epochs if seen.measured else None,
                converged=seen.measured and seen.recorded.converged is not False,
                limits=tuple(self._violations(values, seen.recorded).values()),
            )
            for seen, values in zip(learnt, filled(learnt), strict=True)
        ]

    @property
    def running(self) -> Sequence[Place]:
        """Of the trials that run or wait, one place each."""
        return self._pending_places

    @property
    def set_aside(self) -> frozenset[Place]:
        """Where trials cost several workers their lives."""
        return frozenset(
            place_of(self._space, params)
            for params in self._set_aside.values()
            if not self._space.contains(params)
        )

    def params_at(self, place: Place) -> dict[str, Value]:
        """True values: exactly those of the trials that are there, if any are."""
        known = self._params.get(place)
        return self._space.at(place) if known is None else dict(known)

    def _place(self, params: Mapping[str, Any]) -> Place:
        place = place_of(self._space, params)
        self._params.setdefault(place, self._space.only_there(params))
        return place

    def ask(
        self,
        sampler: BaseSampler,
        number: int,
        *,
        jointly: bool,
        shown: Callable[[list[FrozenTrial]], list[FrozenTrial]],
    ) -> tuple[dict[str, Value], dict[str, Any]]:
        """What `sampler` suggests for the trial `number`,
        and what it notes on it (a genetic sampler's generation).

        Args:
            sampler: it learns from this history alone.
            number: of the trial in the study.
            jointly: whether it draws all parameters together, or one by one.
            shown: chooses, and may rework, the finished trials that the sampler is to see.

        Returns:
            Encoded values, and notes. No values at all when a joint sampler has none to give yet.
        """
        asked = optuna.trial.create_trial(state=TrialState.RUNNING)
        numbered(asked, number)  # the history's storage knows trials by their numbers
        self._storage.show(shown(self._with_values()), self._pending, asked)
        study = Study(NAME, self._storage, sampler=sampler)
        searched = {name: d for name, d in self._distributions.items() if not d.single()}
        drawn = sampler.sample_relative(study, asked, searched) if jointly else {}
        notes = generation(asked)
        if jointly and not drawn:
            return {}, notes
        for name, distribution in searched.items():
            if name not in drawn:
                drawn[name] = sampler.sample_independent(study, asked, name, distribution)
        return {
            name: drawn[name] if name in drawn else r.at([0.0] * r.coordinates)
            for name, r in self._space.ranges.items()
        }, notes

    # -- translation -------------------------------------------------------------------------------

    def _learn(self, trial: FrozenTrial, params: Mapping[str, Any]) -> None:
        recorded = Recorded.from_flat(trial.user_attrs)
        if recorded.set_aside:
            self._set_aside[configuration(params)] = params
        if trial.state == TrialState.COMPLETE:
            measured = float(trial.values[0]), float(trial.values[1])
            self._measured[configuration(params)].append(measured)
            values: Point | None = measured
        elif recorded.target_missed:
            # It took at least this long; that it missed its target is a violated limit.
            values = values_of(recorded, ("wall_clock_s", self._objectives[1]))
        elif recorded.stopped_by in _TEACHES:
            values = _optimistic_end(recorded)  # of a pruned trial: it was no better than this
        else:
            return
        translated = self._translated(trial, params, TrialState.COMPLETE)
        seen = Seen(
            translated, values, recorded, self._place(params), trial.state == TrialState.COMPLETE
        )
        if values is not None:
            self._fill(seen, values)
        self._learnt.append(seen)

    def _with_values(self) -> list[FrozenTrial]:
        """The finished trials in the order of their numbers, those without values of their own as
        bad as the worst.
        """
        if not self.learnt:
            return []
        for seen, values in zip(self._learnt, filled(self._learnt), strict=True):
            if seen.values is None or seen.pruned:
                self._fill(seen, values)
        return sorted((seen.trial for seen in self._learnt), key=lambda trial: trial.number)

    def _fill(self, seen: Seen, values: Point) -> None:
        seen.trial.values = list(values)
        violated = self._violations(values, seen.recorded)
        # Not set_constraint, which sets a value once and never again.
        seen.trial.system_attrs |= {
            f"{CONSTRAINTS}:{key}": value for key, value in violated.items()
        }

    def _translated(
        self, trial: FrozenTrial, params: Mapping[str, Any], state: TrialState
    ) -> FrozenTrial:
        translated = optuna.trial.create_trial(
            state=state,
            params=self._encoded(params, trial.number),
            distributions=self._distributions,
            values=[0.0, 0.0] if state == TrialState.COMPLETE else None,
            system_attrs=generation(trial),
        )
        numbered(translated, trial.number)
        return translated

    def _encoded(self, params: Mapping[str, Any], number: int) -> dict[str, Value]:
        """Encoded values; those that mean exactly 0 are spread over the part of the range that
        means it, and those of what is not there over all of it.

        All on one point they would look to a density estimate like a discovery, and it would go
        there ever more often.
        """
        encoded = self._space.encode(params)
        there, spread = self._space.there(params), number * GOLDEN % 1.0
        for name, r in self._space.ranges.items():
            if name not in there:
                encoded[name] = r.spread(spread)
            elif r.means_zero(params[name]):
                encoded[name] = r.at([ZERO_SHARE * spread])
        return encoded


def known_params(trial: FrozenTrial, space: SearchSpace) -> dict[str, Any]:
    """The true values that a trial has or, while it waits in the queue, will have."""
    return space.true(trial.params)


def _optimistic_end(recorded: Recorded) -> Point | None:
    end = recorded.pruned_optimistic_s, recorded.pruned_optimistic_mql
    return (end[0], end[1]) if end[0] is not None and end[1] is not None else None


def configuration(params: Mapping[str, Any]) -> Configuration:
    """A configuration in a form that compares: floats to ten digits, as they survive any database;
    what is the network's own with its name, for not every configuration has it.
    """
    found: list[float | str] = []
    for name in sorted(params):
        value = params[name]
        if name in BUILT_IN:
            found.append(float(f"{value:.10g}"))
        else:
            written = repr(value) if isinstance(value, str | bool) else f"{value:.10g}"
            found.append(f"{name}={written}")
    return tuple(found)


def generation(trial: FrozenTrial) -> dict[str, Any]:
    """What a genetic sampler notes on a trial and must find there again:
    which generation it belongs to.
    """
    return {key: value for key, value in trial.system_attrs.items() if key.endswith(":generation")}


# What a Gaussian process is shown of finished trials: some of them, as copies that it can fit.


def most_telling(trials: list[FrozenTrial], limit: int) -> list[FrozenTrial]:
    """At most `limit` trials: half of them non-dominated ones, layer after layer, the rest the
    latest of the others.
    """
    if len(trials) <= limit:
        return trials
    left = list(trials)
    chosen: list[FrozenTrial] = []
    while len(chosen) < limit // 2:
        layer = {left[i].number for i in front_indices([(t.values[0], t.values[1]) for t in left])}
        chosen += [t for t in left if t.number in layer][: limit // 2 - len(chosen)]
        left = [t for t in left if t.number not in layer]
    return sorted([*chosen, *left[-(limit - len(chosen)) :]], key=lambda trial: trial.number)


def with_log_time(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Copies with the logarithm of the time: a Gaussian process fits what is spread over decades
    only like that.
    """
    return [
        _with_values(trial, np.array([np.log(max(trial.values[0], 1e-9)), trial.values[1]]))
        for trial in trials
    ]


def clipped(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Copies whose values end where outliers begin (Tukey's far fence):
    a model that fits them fits nothing else.
    """
    if not trials:
        return trials
    values = np.asarray([trial.values for trial in trials])
    low, high = np.quantile(values, (0.25, 0.75), axis=0)
    fence = high + 3.0 * (high - low)
    return [_with_values(trial, np.minimum(trial.values, fence)) for trial in trials]


def _with_values(trial: FrozenTrial, values: np.ndarray[Any, Any]) -> FrozenTrial:
    changed = copy.copy(trial)
    changed.values = [float(value) for value in values]
    return changed
