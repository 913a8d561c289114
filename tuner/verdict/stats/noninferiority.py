"""Whether one configuration is no worse than another by more than a margin: a one-sided test, and
the bound that belongs to it.

About means over seeds, on the scale of ratios: "the mean MQL of `a` is at most (1 + margin) times
that of `b`". On shared seeds the differences a - (1 + margin) b are tested with Student's t. The
bound is the least ratio that the test does not allow to be exceeded: it is below 1 + margin exactly
where the test claims (Fieller, "Some Problems in Interval Estimation", 1954).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.verdict.stats.intervals import LEAST_RUNS, Interval

Array = np.ndarray[Any, Any]

LEVEL = 0.05
"""The chance of "no worse" where it is worse by the margin, or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWorse:
    """`a` against `b`: the ratio of their means, and how high it may be.

    `claimed`: it is no worse by more than `margin`, with an error of `level` at most.
    """

    ratio: float
    bound: float
    """The ratio of the true means is below this with confidence 1 - `level`; infinite where the
    runs exclude nothing."""
    p: float
    margin: float
    level: float
    pairs: int

    @property
    def claimed(self) -> bool:
        return self.bound < 1 + self.margin


def no_worse(
    a: Mapping[int, float], b: Mapping[int, float], *, margin: float, level: float = LEVEL
) -> NoWorse | None:
    """Test "a's mean is at most (1 + margin) times b's" on the seeds that both have; None where
    they share too few.

    Args:
        a: figures above 0, by seed, lower being better.
        b: those of what it is held against.
        margin: how much worse still counts as no worse, relative.
        level: the chance of a wrong claim.
    """
    x, y = _shared(a, b)
    if len(x) < LEAST_RUNS:
        return None
    return NoWorse(
        ratio=float(x.mean() / y.mean()),
        bound=_bound(x, y, level),
        p=_p(x - (1 + margin) * y),
        margin=margin,
        level=level,
        pairs=len(x),
    )


def ratio_of_times(
    a: Mapping[int, float], b: Mapping[int, float], *, confidence: float = 0.95
) -> Interval | None:
    """The geometric mean of a's times over b's on the seeds that both have, with its interval (t,
    on logarithms); None where they share too few.
    """
    from scipy import stats

    x, y = _shared(a, b)
    n = len(x)
    if n < LEAST_RUNS:
        return None
    logs = np.log(x) - np.log(y)
    mean, half = float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(n)
    half *= float(stats.t.isf((1 - confidence) / 2, n - 1))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)


def _shared(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[Array, Array]:
    seeds = sorted(a.keys() & b.keys())
    return np.array([a[seed] for seed in seeds]), np.array([b[seed] for seed in seeds])


def _p(differences: Array) -> float:
    """Of a mean below 0, one-sided."""
    from scipy import stats

    spread = float(differences.std(ddof=1))
    if spread == 0:
        return 0.0 if differences.mean() < 0 else 1.0
    error = spread / math.sqrt(len(differences))
    return float(stats.t.cdf(differences.mean() / error, len(differences) - 1))


def _bound(x: Array, y: Array, level: float) -> float:
    """The greatest ratio r for which the test of x - r y does not reject.

    It rejects where mean(x) - r mean(y) < -t error(r), whose squares make a quadratic in r.
    """
    from scipy import stats

    n = len(x)
    t = float(stats.t.isf(level, n - 1))
    (xx, xy), (_, yy) = np.cov(x, y) * t**2 / n
    mean_x, mean_y = float(x.mean()), float(y.mean())
    # (mean_x - r mean_y)^2 = xx - 2 r xy + r^2 yy
    square, linear = mean_y**2 - yy, mean_x * mean_y - xy
    if square <= 0:  # the mean of b may be 0 for all that is known
        return math.inf
    root = math.sqrt(max(linear**2 - square * (mean_x**2 - xx), 0.0))
    return float((linear + root) / square)
