"""Asking for the configuration by which the front is expected
to grow most, within what somebody would choose.

Two Gaussian processes, of the logarithm of the time and of the MQL. What is much slower or much
worse than the default is no gain, however good it is otherwise: the hypervolume within the corner
(`tuner.search.history.corner_of`) is what is to grow. The front that it grows from is of
*expected* values at the configurations tried, not of measured ones, whose best are the luckiest
seeds.

The expected growth is exact. With h(u) the front's MQL at the time u, a point (t, q) adds the
integral of max(h(u) - q, 0) from t to the corner's time. t and q are independent, so its mean is
the integral of P(t <= u) E[max(h(u) - q, 0)], and h is a staircase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.special import ndtr

from tuner.config import Value
from tuner.search.cube import Cube, WholeSpaceSampler
from tuner.search.gaussian_process import Array, GaussianProcess
from tuner.search.history import WORST, corner_of
from tuner.spec.pareto import Point, front_indices, reference_point
from tuner.spec.space import SearchSpace

EVERYWHERE = 1024
"""Candidates drawn in the whole cube."""
AROUND = 40
"""About each configuration that is expected within the bounds; fewer where there are more than
twenty of those."""
ROUNDS = 3
"""Of drawing closer about the eight best candidates."""


class ImprovementSampler(WholeSpaceSampler):
    """The candidate of the largest expected growth of the hypervolume;
    a function of `seed` and the history alone.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        corner: Point | None,
        default: Mapping[str, Value] | None,
    ) -> None:
        self._space = space
        self._corner = corner
        self._default = np.array([space.shares(default)]) if default is not None else None
        self._cube = Cube(space)
        self._random = np.random.default_rng(seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return self._space.encoded()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del trial
        trials = study.get_trials(deepcopy=False)
        finished = [t for t in trials if t.state == TrialState.COMPLETE]
        if not finished:
            return {}
        running = [
            t
            for t in trials
            if t.state == TrialState.RUNNING and search_space.keys() <= t.params.keys()
        ]
        corner = self._corner or reference_point(_front_of(finished))
        growth = _Growth(
            self._shares(finished), finished, self._shares(running), corner, self._default
        )
        best = self._best(growth)
        chosen = self._space.encoded_at(best.tolist())
        return {name: value for name, value in chosen.items() if name in search_space}

    def _best(self, growth: _Growth) -> Array:
        """The best of candidates everywhere and about the good ones, (coordinates,)."""
        good, dimensions = growth.good, self._cube.dimensions
        each = AROUND * 20 // max(20, len(good)) + 1
        candidates = [
            self._random.random((EVERYWHERE, dimensions)),
            self._about(good, each, width=0.1, share=0.5),
        ]
        x = self._cube.snapped(np.vstack(candidates), zeros=False)
        value = growth.of(x)
        for i in range(ROUNDS):
            top = x[np.argsort(-value, kind="stable")[:8]]
            nearer = self._about(top, 24, width=0.1 / 2.5**i, share=0.6)
            x = np.vstack([top, self._cube.snapped(nearer, zeros=False)])
            value = growth.of(x)
        chosen: Array = x[int(np.argmax(value))]
        return chosen

    def _about(self, x: Array, each: int, *, width: float, share: float) -> Array:
        """`each` points about every row of `x`,
        each coordinate moved with the probability `share`.
        """
        near = np.repeat(x, each, axis=0)
        moved: Array = near + self._random.normal(0.0, width, near.shape) * (
            self._random.random(near.shape) < share
        )
        return moved

    def _shares(self, trials: Sequence[FrozenTrial]) -> Array:
        rows = [self._space.place_of(trial.params) for trial in trials]
        where = np.array(rows, dtype=float).reshape(len(trials), self._cube.dimensions)
        return self._cube.only_there(where)


def _front_of(trials: Sequence[FrozenTrial]) -> list[Point]:
    points = [(trial.values[0], trial.values[1]) for trial in trials]
    return [points[i] for i in front_indices(points)]


class _Growth:
    """How much the hypervolume is expected to grow by a point,
    and the configurations within the corner, `good`.
    """

    def __init__(
        self,
        x: Array,
        finished: Sequence[FrozenTrial],
        running: Array,
        corner: Point,
        default: Array | None,
    ) -> None:
        values = np.array([trial.values for trial in finished])
        # How far it is beyond the corner soon says nothing more, and a model that fits that fits
        # nothing else: it ends as far behind the corner as the default is before it.
        fence = corner[1] * (2 - 1 / WORST)
        self._time = GaussianProcess(x, np.log(np.maximum(values[:, 0], 1e-9)))
        self._mql = GaussianProcess(x, np.minimum(values[:, 1], fence))
        limits = np.array([list(trial.constraints.values()) for trial in finished], dtype=float)
        broken = [column for column in limits.T if (column > 0).any()] if limits.size else []
        self._limits = [GaussianProcess(x, np.clip(column, -1.0, 1.0)) for column in broken]
        if len(running):
            for model in (self._time, self._mql, *self._limits):
                model.believe(running)
            x = np.vstack([x, running])
        self._corner = corner if default is None else corner_of(self._expected(default)[0])
        expected = self._expected(x)
        kept = (
            np.all([model.mean(x) <= 0 for model in self._limits], axis=0)
            if self._limits
            else np.ones(len(x), bool)
        )
        within = kept & np.array([t < self._corner[0] and q < self._corner[1] for t, q in expected])
        self.good = x[within] if within.any() else x[:1]
        inside = [point for point, here in zip(expected, within, strict=True) if here]
        self._front = [inside[i] for i in front_indices(inside)]

    def of(self, x: Array) -> Array:
        """The expected growth at `x`, (rows, coordinates): (rows,), in seconds times MQL."""
        edges = np.array([0.0, *(t for t, _ in self._front), self._corner[0]])
        steps = np.array([self._corner[1], *(q for _, q in self._front)])
        log_time, time_sd = (part[:, None] for part in self._time.posterior(x))
        mql, mql_sd = (part[:, None] for part in self._mql.posterior(x))
        # The integral of P(t <= u) from 0 to an edge, t log-normal; then within each step of the
        # staircase.
        d = (np.log(np.maximum(edges, 1e-300)) - log_time) / time_sd
        until = edges * ndtr(d) - np.exp(log_time + 0.5 * time_sd**2) * ndtr(d - time_sd)
        better = (steps - mql) / mql_sd
        gain = mql_sd * (better * ndtr(better) + np.exp(-0.5 * better**2) / math.sqrt(2 * math.pi))
        growth: Array = (np.diff(until, axis=1) * gain).sum(axis=1)
        for model in self._limits:
            mean, sd = model.posterior(x)
            growth = growth * ndtr(-mean / sd)
        return growth

    def _expected(self, x: Array) -> list[Point]:
        times, mqls = np.exp(self._time.mean(x)), self._mql.mean(x)
        return [(float(t), float(q)) for t, q in zip(times, mqls, strict=True)]
