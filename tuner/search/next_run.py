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

import functools
import math
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from tuner.search.cube import Cube
from tuner.search.history import TrialHistory
from tuner.search.next_run_model import (
    MQL,
    ROWS,
    TIME,
    Figure,
    Fits,
    Fitted,
    another_figure,
    asked_of,
    fitted_until,
    promising,
)
from tuner.search.past_runs import SHORTEST, Configurations, PastRun, Place, rows_of
from tuner.spec.margin import CONFIRMATION_SEEDS, LEVEL
from tuner.spec.policy import CAP
from tuner.spec.space import SearchSpace

# New places in the unit cube that a search may go to next.


Array = np.ndarray[Any, Any]

NEW = 150
"""Candidates."""
MOVED = 0.6
"""How probably a coordinate differs from that of the place that a new one is drawn about."""


class NewPlaces:
    """Draws them for one space."""

    def __init__(self, space: SearchSpace) -> None:
        self._cube = Cube(space)

    @property
    def dimensions(self) -> int:
        return self._cube.dimensions

    def drawn(self, about: Array, known: Container[Place], random: np.random.Generator) -> Array:
        """New places, (rows, coordinates): three of four about the most promising ones, at
        distances of all sizes. Fewer where the space holds few.
        """
        near = NEW * 3 // 4
        base = about[random.integers(0, len(about), near)]
        width = 10 ** random.uniform(-2, -0.5, (near, 1))
        moved = base + random.normal(0, 1, base.shape) * width * (random.random(base.shape) < MOVED)
        anywhere = random.random((NEW - near, self.dimensions))
        drawn = self._cube.snapped(np.vstack([moved, anywhere])).round(9)
        places = dict.fromkeys(tuple(place) for place in drawn.tolist())
        new = [place for place in places if place not in known]
        return np.array(new).reshape(len(new), self.dimensions)


# What candidates for the next run are worth, and how much a run of each is expected to add.


AHEAD = (1, 3, 8, 20)
"""Runs of one configuration that are looked ahead."""
LOWEST, HIGHEST = -0.01, 0.03
"""Levels of MQL that are asked for, relative to the default's."""
BESIDE_S = 0.03
"""What a training costs beside its own seconds where the next is made ready meanwhile."""
NEVER = -1.0
"""Less than any gain."""

_NODES = np.polynomial.hermite_e.hermegauss(5), np.polynomial.hermite_e.hermegauss(9)
"""Of time and of MQL."""
_WEIGHTS = np.outer(_NODES[TIME][1], _NODES[MQL][1])
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Believed:
    """What all runs make of time, MQL and the limits."""

    ran: Configurations
    time: Figure
    mql: Figure
    limits: Sequence[Figure]
    """How far a configuration is beyond each limit that some run was beyond."""
    margin: float
    """How much worse than the default's an MQL may be, relative; below 0 where another's level is
    asked for, which is lower than that."""
    slower: float = 0.0
    """By how much the logarithm of a time may be above the default's that is still worth something.
    """

    @staticmethod
    def of(
        past: Sequence[PastRun],
        running: Sequence[Place],
        default: Place,
        fitted: Sequence[Fitted],
        margin: float,
    ) -> Believed:
        """Runs that have not ended count as if they came to what is expected of them."""
        ran = Configurations.of(past, default)
        limits = _limits(past, ran)
        ran = ran.taken(promising(ran, ROWS))
        time, mql = (Figure(ran, figure, fitted[figure]) for figure in (TIME, MQL))
        if running:
            places = list(dict.fromkeys(running))
            rows = {place: i for i, place in enumerate(ran.places)}
            places.sort(key=lambda place: place not in rows)
            tried = np.array([rows[place] for place in places if place in rows], dtype=int)
            new = np.array(places[len(tried) :]).reshape(-1, ran.where.shape[1])
            means = (figure.of(tried, new).mean.tolist() for figure in (time, mql))
            expected = dict(zip(places, zip(*means, strict=True), strict=True))
            ran = ran.expecting(Counter(running), expected)
            time, mql = (Figure(ran, figure, fitted[figure]) for figure in (TIME, MQL))
        return Believed(ran, time, mql, limits, margin)

    @property
    def of_default(self) -> float:
        """The logarithm of the default's MQL."""
        one, nothing = np.array([self.ran.default]), np.empty((0, self.ran.where.shape[1]))
        return self.mql.of(one, nothing).default


class Candidates:
    """Configurations that ran, by their rows in `believed.ran`, and new places after them; arrays
    are (candidates,).
    """

    def __init__(self, believed: Believed, tried: Array, new: Array) -> None:
        ran = believed.ran
        self._believed = believed
        self._time, self._mql = (f.of(tried, new) for f in (believed.time, believed.mql))
        length = np.clip(self._time.mean - self._time.default, SHORTEST, 0.0)
        length[: len(tried)] = ran.length[tried]
        self._noise = believed.mql.noise(length)
        of_default = float(believed.mql.noise(np.zeros(1))[0])
        # Of one question, by which it was tuned; that a confirmation has three moves it little.
        self._error, needed = asked_of(self._noise, of_default, CONFIRMATION_SEEDS, LEVEL)
        self._room = self._mql.default + math.log1p(believed.margin) - self._mql.mean - needed
        self._is_default = np.arange(len(tried) + len(new)) < 0
        self._is_default[: len(tried)] = tried == ran.default
        self._kept, self._chance = _within(believed.limits, np.vstack([ran.where[tried], new]))

    @functools.cached_property
    def worth(self) -> Array:
        """0 of the default, and of what is expected beyond a limit."""
        most = self._time.default + self._believed.slower
        saved = _positive(most - self._time.mean, np.sqrt(self._time.apart))
        found: Array = saved * ndtr(self._room / np.sqrt(self._error + self._mql.apart))
        return np.where(self._is_default | ~self._kept, 0.0, found)

    def gain_per_second(self) -> Array:
        """By how much the best is expected to be worth more, at best over `AHEAD`."""
        time, mql, worth = self._time, self._mql, self.worth
        first, second = int(np.argmax(worth)), float(np.partition(worth, -2)[-2])
        others = np.full(len(worth), worth[first])
        others[first] = second
        cost = np.exp(time.mean) + BESIDE_S
        of_time = self._believed.time.noise(np.zeros(1))
        best, most = np.full(len(worth), NEVER), time.default + self._believed.slower
        for runs in AHEAD:
            q = mql.explained(self._noise / runs)[:, None]
            t = time.explained(of_time / runs)[:, None]
            left = np.sqrt(np.maximum(self._error + mql.apart - q[:, 0], _LEAST_VARIANCE))[:, None]
            sure = ndtr((self._room[:, None] + np.sqrt(q) * _NODES[MQL][0]) / left)
            saved = _positive(
                (most - time.mean)[:, None] + np.sqrt(t) * _NODES[TIME][0],
                np.sqrt(np.maximum(time.apart[:, None] - t, _LEAST_VARIANCE)),
            )
            after = np.maximum(saved[:, :, None] * sure[:, None, :], others[:, None, None])
            gain = (after * _WEIGHTS).sum(axis=(1, 2)) - worth[first]
            best = np.maximum(best, self._chance * gain / (runs * cost))
        return np.where(self._is_default, NEVER, best)

    def at_a_level(self, random: np.random.Generator) -> int:
        """The fastest that reaches a random level in one draw, each candidate by itself."""
        time, mql = (
            of.mean + np.sqrt(of.variance) * random.standard_normal(len(of.mean))
            for of in (self._time, self._mql)
        )
        within = self._kept & (mql <= self._mql.default + random.uniform(LOWEST, HIGHEST))
        return int(np.argmin(np.where(within, time, np.inf)))


def _limits(past: Sequence[PastRun], ran: Configurations) -> list[Figure]:
    """Of limits that no run was beyond there is nothing to learn."""
    rows = rows_of(past)
    row = np.array([rows[run.where] for run in past])
    columns = [np.array(each) for each in zip(*(run.limits for run in past), strict=True)]
    return [
        another_figure(ran, row, np.clip(column, -1.0, 1.0))
        for column in columns
        if (column > 0).any()
    ]


def _within(limits: Sequence[Figure], x: Array) -> tuple[Array, Array]:
    """Which places are expected within all limits, and how surely."""
    kept, chance = np.ones(len(x), dtype=bool), np.ones(len(x))
    for each in limits:
        beyond = each.of(np.arange(0), x)
        kept &= beyond.mean <= 0
        chance *= ndtr(-beyond.mean / np.sqrt(beyond.variance))
    return kept, chance


def _positive(mean: Array, sd: Array) -> Array:
    """The mean of what is above 0 of normal distributions."""
    r = mean / sd
    found: Array = mean * ndtr(r) + sd * np.exp(-0.5 * r * r) / math.sqrt(2 * math.pi)
    return found


KNOWN, ABOUT = 80, 25
"""Candidates that ran, and those of them that new ones are drawn about."""
LEAST_CONFIGURATIONS = 3
"""Of fewer, there is nothing to choose."""
LEAST_DEFAULT, SHARE_OF_DEFAULT = 4, 0.4
"""Runs of the default: so many, and this share of those of the most promising."""
NOTHING_NEW = 0.9
"""Of the trials of a search, after which no new configuration is tried."""
FOR_ANOTHERS, SLOWER = 0.33, math.log(CAP)
"""How often the level of another study is asked for, where there is one; what reaches it is worth
something as long as no training is cut off that takes as long."""
LEAST_CHANCE, LEAST_CONVERGED = 0.005, 12
"""It is not asked for where so many configurations or more converged, and none of them reaches it
with this chance (benchmarks/verdict/hopeless-levels.md)."""
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


def is_hopeless(known: Known, fitted: Sequence[Fitted], level: float) -> bool:
    """Whether nothing that ran promises an MQL of which `level` is the logarithm. Only what
    converged counts: what was cut off does not say what it would have come to.
    """
    ran = Configurations.of([run for run in known.past if run.converged], known.default)
    if len(ran.runs) < LEAST_CONVERGED:
        return False
    ran = ran.taken(promising(ran, ROWS))
    rows, nothing = np.arange(len(ran.runs)), np.empty((0, ran.where.shape[1]))
    mql = Figure(ran, MQL, fitted[MQL]).of(rows, nothing)
    chances = ndtr((level - mql.mean) / np.sqrt(mql.variance))
    return float(chances.max()) < LEAST_CHANCE


def _ran(past: Sequence[PastRun], where: Place) -> bool:
    return any(run.where == where for run in past)


class NextRun:
    """Decides for one space; `margin` is how much worse than the default's an MQL may be.

    What it keeps saves time, and changes no answer.
    """

    def __init__(self, space: SearchSpace, *, margin: float) -> None:
        self._places, self._margin = NewPlaces(space), margin
        self._fits = Fits()
        self.for_anothers: bool | None = None
        """Whether the last answer is for another study's level; False where it was to be, and
        nothing promises that."""

    def place(
        self,
        known: Known,
        random: np.random.Generator,
        *,
        new: bool = True,
        level: float | None = None,
    ) -> Place:
        """Where to run next: where `new` is False, a place that ran already. `level`: the logarithm
        of the MQL that another study asks for.
        """
        fitted = self._fits.of(known.fit, known.default)
        believed = Believed.of(known.past, known.running, known.default, fitted, self._margin)
        self.for_anothers = None
        if level is not None and random.random() < FOR_ANOTHERS:
            self.for_anothers = not is_hopeless(known, fitted, level)
        if level is not None and self.for_anothers:
            # What a stranger wrote into a shared database may be any number.
            above = math.expm1(min(max(level - believed.of_default, -1.0), 1.0))
            believed = replace(believed, margin=above, slower=SLOWER)
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
