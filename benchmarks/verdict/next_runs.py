"""One model of all runs decides each time between a new configuration and another seed of a known
one.

What a configuration is worth is how much time it is expected to save (a logarithm), times the chance
that a confirmation on 30 seeds calls it as good as the default. Of each candidate it is worked out
how much k more runs of it are expected to add to the worth of the best, for several k: one run may
change no decision where ten do. The candidate with the largest gain per GPU second runs once.

Sources: Frazier, Powell and Dayanik, "The Knowledge-Gradient Policy for Correlated Normal Beliefs"
(2009); Frazier and Powell, "Paradoxes in Learning and the Marginal Value of Information" (2010) for
looking several runs ahead.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats.qmc import Sobol

from benchmarks.verdict.budgets import BESIDE_S, SEEDS, Gpu, Place
from benchmarks.verdict.next_runs_model import Figure, Of
from benchmarks.verdict.truths import truth
from tuner.spec.margin import MARGIN, TOO_MUCH
from tuner.spec.space import SizeRange
from tuner.verdict.repeated_runs import Repeated

Array = np.ndarray[Any, Any]

STARTUP = 10
"""Sobol points after the default."""
AHEAD = (1, 3, 8, 20)
"""Runs of one configuration that are looked ahead."""
KNOWN, NEW = 80, 150
"""Candidates."""
LEAST_DEFAULT, SHARE_OF_DEFAULT = 4, 0.4
"""Runs of the default: so many, and this share of those of the most promising."""
AT_LEVELS, ANYWHERE = 0.1, 0.05
"""How often a random level is asked for, and how often the best new configuration whatever else."""
NOTHING_NEW = 0.9
"""Of the budget, after which nothing new is tried."""
OF_DEFAULT = 1.0
"""The least variance of the default's own effect: it was chosen, so its neighbours are worse."""
HARD = 1.78
"""Standard errors within the margin at which half of all confirmations succeed."""
FIT_ROWS, GROWTH, ITERATIONS = 150, 1.15, 15

_TIMES = np.polynomial.hermite_e.hermegauss(5)
_MQLS = np.polynomial.hermite_e.hermegauss(9)


class NextRuns:
    """Spends what a GPU has left; `cpu_s` holds what each decision took."""

    def __init__(self, gpu: Gpu, *, new: bool = True) -> None:
        self._gpu, self._new = gpu, new
        self._random = np.random.default_rng([gpu.seed, 5])
        ranges = truth(gpu.name).space.ranges.values()
        self._levels = [r.levels if isinstance(r, SizeRange) else None for r in ranges]
        self._figures = Figure(len(self._levels)), Figure(len(self._levels))
        self._fitted = 0
        self.cpu_s: list[float] = []

    def spend(self) -> None:
        if not self._gpu.trained:
            self._gpu.train(self._gpu.default)
            random = np.random.default_rng(self._gpu.seed)
            points = Sobol(len(self._levels), scramble=True, rng=random).random(16)
            for point in self._snapped(points[:STARTUP]):
                self._gpu.train(tuple(point.tolist()))
        while self._gpu.left_s > 0:
            began = time.process_time()
            self._learn()
            where = self._next()
            self.cpu_s.append(time.process_time() - began)
            self._gpu.train(tuple(where.tolist()))

    def _learn(self) -> None:
        rows: dict[Place, int] = {}
        figures: list[list[tuple[float, float, float]]] = []
        for where, t in self._gpu.trained:
            if where not in rows:
                rows[where] = len(rows)
                figures.append([])
            figures[rows[where]].append((math.log(t.seconds), math.log(t.mql), math.log(t.epochs)))
        d = self._row = rows[self._gpu.default]
        fence = float(np.mean([q for _, q, _ in figures[d]])) + math.log1p(TOO_MUCH)
        each = [np.array(mine) for mine in figures]
        for mine in each:
            mine[:, 1] = np.minimum(mine[:, 1], fence)
        means = np.array([mine.mean(axis=0) for mine in each])
        squares = np.array([((mine - mine.mean(axis=0)) ** 2).sum(axis=0) for mine in each])
        self._where, self._runs = np.array(list(rows)), np.array([float(len(x)) for x in each])
        self._length = np.clip(means[:, 2] - means[d, 2], -2.0, 0.0)
        # Settings are fitted to what ran often, and to what is fast and good.
        beyond = np.maximum(means[:, :2] - means[d, :2], 0) @ np.array([0.5, 20.0])
        beyond = beyond - 0.5 * np.minimum(self._runs, 3)
        beyond[d] = -np.inf
        some = np.argsort(beyond, kind="stable")[:FIT_ROWS]
        iterations = 0
        if len(self._gpu.trained) >= min(self._fitted * GROWTH, self._fitted + 40):
            iterations = ITERATIONS if self._fitted else 40
            self._fitted = len(self._gpu.trained)
        for i, (figure, own) in enumerate(zip(self._figures, (0.0, OF_DEFAULT), strict=True)):
            length = self._length if i else np.zeros(len(each))
            data = Repeated(
                where=self._where,
                mean=means[:, i],
                runs=self._runs,
                squares=squares[:, i],
                length=length,
            )
            figure.fit(data, some, d, own, iterations)

    def _next(self) -> Array:
        nothing = np.empty((0, len(self._levels)))
        worth = self._worth(np.arange(len(self._where)), nothing)
        order = np.argsort(-worth, kind="stable")
        most = self._runs[order[:3]].max()
        if self._runs[self._row] < LEAST_DEFAULT + SHARE_OF_DEFAULT * most:
            place: Array = self._where[self._row]
            return place
        tried = np.concatenate([[self._row], order[order != self._row][: KNOWN - 1]])
        late = self._gpu.spent_s > NOTHING_NEW * self._gpu.budget_s
        new = nothing if late or not self._new else self._drawn(tried)
        places = np.vstack([self._where[tried], new])
        if self._random.random() < AT_LEVELS:
            return places[self._at_a_level(tried, new)]
        value = self._gain_per_second(tried, new)
        if len(new) and self._random.random() < ANYWHERE:
            value[: len(tried)] = -1.0
        best: Array = places[int(np.argmax(value))]
        return best

    def _noise(self, tried: Array, time_: Of) -> Array:
        length = np.clip(time_.mean - time_.default, -2.0, 0.0)
        length[: len(tried)] = self._length[tried]
        return self._figures[1].noise(length)

    def _worth(self, tried: Array, new: Array) -> Array:
        time_, mql = (figure.of(tried, new) for figure in self._figures)
        noise = self._noise(tried, time_) + float(self._figures[1].noise(np.zeros(1))[0])
        return self._value(tried, time_, mql, noise / SEEDS)

    def _value(self, tried: Array, time_: Of, mql: Of, error: Array) -> Array:
        saved = _positive(time_.default - time_.mean, np.sqrt(time_.apart))
        room = mql.default + math.log1p(MARGIN) - mql.mean - HARD * np.sqrt(error)
        found: Array = saved * ndtr(room / np.sqrt(error + mql.apart))
        found[: len(tried)][tried == self._row] = 0.0
        return found

    def _gain_per_second(self, tried: Array, new: Array) -> Array:
        """By how much the best is expected to be worth more, at best over `AHEAD`."""
        time_, mql = (figure.of(tried, new) for figure in self._figures)
        noise = self._noise(tried, time_)
        error = (noise + float(self._figures[1].noise(np.zeros(1))[0])) / SEEDS
        worth = self._value(tried, time_, mql, error)
        first, second = int(np.argmax(worth)), float(np.partition(worth, -2)[-2])
        others = np.full(len(worth), worth[first])
        others[first] = second
        cost = np.exp(time_.mean) + BESIDE_S
        room = (mql.default + math.log1p(MARGIN) - mql.mean - HARD * np.sqrt(error))[:, None]
        of_time = self._figures[0].noise(np.zeros(1))
        best = np.full(len(worth), -1.0)
        weights = np.outer(_TIMES[1], _MQLS[1]) / (_TIMES[1].sum() * _MQLS[1].sum())
        for runs in AHEAD:
            q, t = mql.explained(noise / runs)[:, None], time_.explained(of_time / runs)[:, None]
            left = np.sqrt(np.maximum(error + mql.apart - q[:, 0], 1e-12))[:, None]
            sure = ndtr((room + np.sqrt(q) * _MQLS[0]) / left)
            saved = _positive(
                (time_.default - time_.mean)[:, None] + np.sqrt(t) * _TIMES[0],
                np.sqrt(np.maximum(time_.apart[:, None] - t, 1e-12)),
            )
            after = np.maximum(saved[:, :, None] * sure[:, None, :], others[:, None, None])
            gain = ((after * weights).sum(axis=(1, 2)) - worth[first]) / (runs * cost)
            best = np.maximum(best, np.where(runs * cost <= self._gpu.left_s, gain, -1.0))
        best[: len(tried)][tried == self._row] = -1.0
        return best

    def _at_a_level(self, tried: Array, new: Array) -> int:
        """The fastest that reaches a random level in one draw, each candidate by itself."""
        time_, mql = (figure.of(tried, new) for figure in self._figures)
        drawn = [
            of.mean + np.sqrt(of.variance) * self._random.standard_normal(len(of.mean))
            for of in (time_, mql)
        ]
        within = drawn[1] <= mql.default + self._random.uniform(-0.01, 0.03)
        return int(np.argmin(np.where(within, drawn[0], 99.0)))

    def _drawn(self, tried: Array) -> Array:
        """New places: three of four about the most promising, at distances of all sizes."""
        random, d = self._random, len(self._levels)
        base, near = self._where[tried[1:26]], NEW * 3 // 4
        about = base[random.integers(0, len(base), near)]
        width = 10 ** random.uniform(-2, -0.5, (near, 1))
        moved = about + random.normal(0, 1, about.shape) * width * (
            random.random(about.shape) < 0.6
        )
        return self._snapped(np.vstack([moved, random.random((NEW - near, d))]))

    def _snapped(self, x: Array) -> Array:
        x = np.clip(x, 0.0, 1.0)
        for i, levels in enumerate(self._levels):
            if levels is not None:
                x[:, i] = (np.minimum(np.floor(x[:, i] * levels), levels - 1) + 0.5) / levels
        return x


def _positive(mean: Array, sd: Array) -> Array:
    """The mean of what is above 0 of normal distributions."""
    r = mean / sd
    found: Array = mean * ndtr(r) + sd * np.exp(-0.5 * r * r) / math.sqrt(2 * math.pi)
    return found
