"""Asking for the next configuration: any Optuna sampler
on a history of the study, after a well-spread beginning.

A suggestion is a function of the seed, the trial's number and the history: nothing is kept from one
ask to the next but what the study holds itself. So a search with one worker is reproducible, across
restarts too, and workers that ask at the same time draw different numbers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.config import Value
from tuner.record import Recorded
from tuner.search.beginning import Beginning
from tuner.search.cube import WholeSpaceSampler
from tuner.search.gaussian_process import one_thread
from tuner.search.history import TrialHistory, known_params
from tuner.search.methods import method_of
from tuner.search.past_runs import place_of
from tuner.spec.definition import StudyDefinition
from tuner.spec.margin import MARGIN
from tuner.spec.membership import FIRST_DRAW, drawn_as
from tuner.spec.objectives import violations
from tuner.spec.policy import SearchPolicy
from tuner.spec.space import SearchSpace
from tuner.storage.optuna.private import storage_of, trial_id_of

if TYPE_CHECKING:
    from tuner.search.next_run import NextRun


# Sobol points by trial number: however many workers ask, together they walk one well-spread
# sequence.


STRIDE = 7919
"""Between the points that are tried for one trial number after its own:
a prime, so that numbers rarely collide."""


class SobolPoints:
    """A scrambled Sobol sequence in the unit cube of `dimensions`, fixed by `seed`.

    Sources: Sobol (1967), Owen (1998) for the scrambling; scipy's implementation.
    """

    def __init__(self, dimensions: int, seed: int) -> None:
        self._dimensions = dimensions
        self._seed = seed

    def point(self, index: int) -> list[float]:
        """The point number `index`, `dimensions` coordinates from 0 to 1."""
        from scipy.stats.qmc import Sobol

        sequence = Sobol(self._dimensions, scramble=True, rng=np.random.default_rng(self._seed))
        if index:
            sequence.fast_forward(index)
        return [float(x) for x in sequence.random(1)[0]]

    def others(self, index: int, count: int) -> Iterator[list[float]]:
        """Up to `count` points for the same trial when
        its own will not do, far along the sequence.
        """
        for again in range(1, count + 1):
            yield self.point(index + again * STRIDE)


TRIES = 64
"""Candidates at most in place of a configuration that is there already."""

_SEARCHES = 0x73656172
"""Tells the seeds of searches from those of asks."""

ANSWERS_WITHIN_S = 5.0
"""How long an ask waits for the answers to those made just before it,
so that it can take them into account."""


def sampler_for(
    name: str,
    definition: StudyDefinition,
    policy: SearchPolicy,
    *,
    search: int = 1,
    draw: int = FIRST_DRAW,
    budget: int | None = None,
) -> EncodedSampler:
    """The sampler of a study called `name`, which is the `search` of that number in its group, as
    its policy wants it; `budget` is how many trials it is to have, where that is known.

    A policy without a seed gets one from the study's name and `draw`: all workers of the study walk
    one Sobol sequence. Each search of a group walks its own, whatever the policy says.
    """
    if policy.seed is None:
        seed = _seed_of_name(name, draw)
    else:
        seed = policy.seed if search == 1 else _seed_of_search(policy.seed, search)
    target = definition.target_val_loss

    def violated(values: tuple[float, float], recorded: Recorded) -> dict[str, float]:
        return violations(policy, values, recorded, target_val_loss=target)

    return EncodedSampler(
        definition.space,
        policy.sampler,
        seed=seed,
        default=definition.defaults.as_dict(),
        history=TrialHistory(definition.space, definition.objectives, violated),
        margin=policy.counted_margin,
        budget=budget,
    )


class EncodedSampler(WholeSpaceSampler):
    """Suggests values of the stored space by asking the sampler `name` for encoded ones on a
    history of the study.
    """

    def __init__(
        self,
        space: SearchSpace,
        name: str,
        *,
        seed: int,
        default: Mapping[str, Value] | None = None,
        history: TrialHistory | None = None,
        margin: float = MARGIN,
        budget: int | None = None,
    ) -> None:
        self._space = space
        self._default = default
        self._method = method_of(name)
        self._seed = seed
        self._history = history or TrialHistory(space)
        self._sobol = SobolPoints(space.dimensions, seed)
        self._margin, self._budget = margin, budget
        self.level: float | None = None
        """The logarithm of the MQL that another study asks for, as far as it is known by now."""
        self._next_run: NextRun | None = None
        self._beginning: Beginning | None = None
        if self._method.repeats and default is not None:
            self._beginning = Beginning(space, default, seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return self._space.stored()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del search_space
        if self._space.whole(known_params(trial, self._space)):
            return {}  # enqueued, or handed back: it has its values
        return self._space.held(self._choose(study, trial))

    def _choose(self, study: Study, trial: FrozenTrial) -> dict[str, Value]:
        trials = (
            self._earlier_answered(study, trial)
            if self._method.waits
            else study.get_trials(deepcopy=False)
        )
        self._history.update(trials, asking=trial.number)
        if (run := self._first(trial.number) or self._run(trial)) is not None:
            return run
        params, notes = self._suggest(trial.number)
        trial.system_attrs |= notes
        for key, note in notes.items():
            storage_of(study).set_trial_system_attr(trial_id_of(trial), key, note)
        return self._unseen(params, trial.number)

    def _first(self, number: int) -> dict[str, Value] | None:
        """What a search begins with; None after that, and of what was set aside."""
        history, beginning = self._history, self._beginning
        found = None if beginning is None else beginning.at(number, history.values_of)
        barred = found is not None and place_of(self._space, found) in history.set_aside
        return None if barred else found

    def _run(self, trial: FrozenTrial) -> dict[str, Value] | None:
        """What runs as this trial, be it new or not, for a method that repeats; None where there is
        no run of the default to go by.
        """
        history, default = self._history, self._default
        if not self._method.repeats or default is None or history.learnt < self._startup:
            return None
        from tuner.search import next_run  # scipy: who only names a sampler does not wait for it

        found = next_run.known(history, place_of(self._space, default))
        if found is None:
            return None
        if self._next_run is None:
            self._next_run = next_run.NextRun(self._space, margin=self._margin)
        random = np.random.default_rng(_seed_of_ask(self._seed, trial.number))
        with one_thread():
            new = next_run.may_be_new(found, self._budget)
            place = self._next_run.place(found, random, new=new, level=self.level)
        if self._next_run.for_anothers is not None:
            trial.user_attrs["for_anothers"] = self._next_run.for_anothers
        return history.params_at(place)

    def _suggest(self, number: int) -> tuple[dict[str, Value], dict[str, Any]]:
        """True values for the trial `number`, and what a genetic sampler notes on it."""
        method = self._method
        notes: dict[str, Any] = {}
        if method.make is not None and self._history.learnt >= self._startup:
            inner = method.make(_seed_of_ask(self._seed, number))
            with one_thread():
                encoded, notes = self._history.ask(
                    inner, number, jointly=method.jointly, shown=method.shown
                )
            if encoded:
                return self._space.decode(encoded), notes
        return self._space.at(self._sobol.point(number)), notes

    @property
    def _startup(self) -> int:
        """How many points of the sequence come before the model; more in a space of many
        hyperparameters.
        """
        if not self._method.startup:
            return 0
        searched = sum(not r.single for r in self._space.ranges.values())
        return max(self._method.startup, 2 * searched + 2)

    def _unseen(self, params: dict[str, Value], number: int) -> dict[str, Value]:
        """`params`, or in place of a configuration that some trial has: its nearest new neighbour,
        or a new point.

        Where the space holds nothing new within a bounded number of tries, the configuration is
        repeated.
        """
        if not self._history.holds(params):
            return params
        fresh = (
            candidate
            for candidate in self._instead(params, number)
            if not self._history.holds(candidate)
        )
        return next(fresh, params)

    def _instead(self, params: dict[str, Value], number: int) -> Iterator[dict[str, Value]]:
        yield from neighbours(self._space, params)
        for point in self._sobol.others(number, TRIES):
            yield self._space.at(point)

    def _earlier_answered(self, study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """All trials, once those that were asked for just
        before this one know their configurations.
        """
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            trials = study.get_trials(deepcopy=False)
            unanswered = any(
                other.state == TrialState.RUNNING
                and other.number < trial.number
                and not self._space.whole(known_params(other, self._space))
                for other in trials
            )
            if not unanswered or time.monotonic() > deadline:
                return trials
            time.sleep(0.05)


def neighbours(space: SearchSpace, params: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Configurations one step from `params`, the nearest first: one value is moved along its range,
    or is another choice, the others stay.
    """
    encoded = space.encode(params)
    moves: list[tuple[float, str, Value]] = []
    for name, r in space.there(params).items():
        for distance, value in r.steps(encoded[name]):
            moves.append((distance, name, value))
    for _, name, value in sorted(moves, key=lambda move: move[0]):
        yield space.decode(encoded | {name: value})


def _seed_of_ask(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _seed_of_search(seed: int, search: int) -> int:
    """Of a search after the first, which has the group's seed itself."""
    return int(np.random.SeedSequence([seed, search, _SEARCHES]).generate_state(1)[0])


def _seed_of_name(name: str, draw: int) -> int:
    return int.from_bytes(hashlib.sha256(drawn_as(name, draw)).digest()[:4], "big")
