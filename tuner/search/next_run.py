"""Deciding on the next run by a model of all runs: a configuration that is new, or another seed of
a known one.

Of each candidate it is worked out how much k more runs of it are expected to add to the worth of
the best, for several k: one run may change no decision where ten do. The candidate with the largest
gain per second runs once.

Sources: Frazier, Powell and Dayanik, "The Knowledge-Gradient Policy for Correlated Normal Beliefs"
(2009); Frazier and Powell, "Paradoxes in Learning and the Marginal Value of Information" (2010) for
looking several runs ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.history import TrialHistory
from tuner.search.next_run_candidates import NewPlaces
from tuner.search.next_run_model import Fits, fitted_until
from tuner.search.next_run_worth import NEVER, Believed, Candidates
from tuner.search.past_runs import PastRun, Place, rows_of
from tuner.spec.space import SearchSpace

KNOWN, ABOUT = 80, 25
"""Candidates that ran, and those of them that new ones are drawn about."""
LEAST_CONFIGURATIONS = 3
"""Of fewer, there is nothing to choose."""
LEAST_DEFAULT, SHARE_OF_DEFAULT = 4, 0.4
"""Runs of the default: so many, and this share of those of the most promising."""
NOTHING_NEW = 0.9
"""Of the trials of a search, after which no new configuration is tried."""
AT_LEVELS, ANYWHERE = 0.1, 0.05
"""How often a random level is asked for, and how often the best new configuration whatever else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a decision follows from, beside its random numbers."""

    past: Sequence[PastRun]
    """In the order of their trials."""
    fit: Sequence[PastRun]
    """Those that the model's settings are fitted to."""
    default: Place
    """Some runs of both are there."""
    running: Sequence[Place] = ()
    """Of runs that have not ended."""
    barred: frozenset[Place] = frozenset()
    """Not to be run again."""


def known(history: TrialHistory, default: Place) -> Known | None:
    """What a study's history says; None where its default has not converged, or too little ran."""
    every = history.past_runs()
    past, fit = (
        [run for run in runs if run.converged or run.where != default]
        for runs in (every, history.past_runs(fitted_until(len(every))))
    )
    # What the default comes to where it fails would make all others look as good as it.
    if not _ran(past, default) or len(rows_of(past)) < LEAST_CONFIGURATIONS:
        return None
    return Known(
        past=past,
        fit=fit if _ran(fit, default) else past,
        default=default,
        running=history.running,
        barred=history.set_aside,
    )


def may_be_new(known: Known, budget: int | None) -> bool:
    """Whether there is time left to learn what a new configuration is worth, in a search of so many
    trials.
    """
    return budget is None or len(known.past) + len(known.running) < NOTHING_NEW * budget


def _ran(past: Sequence[PastRun], where: Place) -> bool:
    return any(run.where == where for run in past)


class NextRun:
    """Decides for one space; `margin` is how much worse than the default's an MQL may be.

    What it keeps saves time, and changes no answer.
    """

    def __init__(self, space: SearchSpace, *, margin: float) -> None:
        self._places, self._margin = NewPlaces(space), margin
        self._fits = Fits()

    def place(self, known: Known, random: np.random.Generator, *, new: bool = True) -> Place:
        """Where to run next: where `new` is False, a place that ran already."""
        fitted = self._fits.of(known.fit, known.default)
        believed = Believed.of(known.past, known.running, known.default, fitted, self._margin)
        ran, d = believed.ran, believed.ran.default
        nothing = np.empty((0, self._places.dimensions))
        worth = Candidates(believed, np.arange(len(ran.runs)), nothing).worth
        order = np.argsort(-worth, kind="stable")
        least = LEAST_DEFAULT + SHARE_OF_DEFAULT * ran.runs[order[:3]].max()
        if ran.runs[d] < least and known.default not in known.barred:
            return known.default
        places = ran.places
        others = [i for i in order.tolist() if i != d and places[i] not in known.barred]
        if not others and not new:
            return known.default
        tried = np.array([d, *others[: KNOWN - 1]])
        about = ran.where[others[:ABOUT] or [d]]
        there = known.barred.union(places)
        fresh = self._places.drawn(about, there, random) if new else nothing
        chosen = _chosen(Candidates(believed, tried, fresh), len(fresh), random)
        if chosen < len(tried):
            return places[int(tried[chosen])]
        place: Place = tuple(fresh[chosen - len(tried)].tolist())
        return place


def _chosen(candidates: Candidates, new: int, random: np.random.Generator) -> int:
    """Which of the candidates, the last of which are new."""
    if random.random() < AT_LEVELS:
        return candidates.at_a_level(random)
    value = candidates.gain_per_second()
    if new and random.random() < ANYWHERE:
        value[:-new] = NEVER
    return int(np.argmax(value))
