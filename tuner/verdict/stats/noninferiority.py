"""Whether one configuration is no worse than another by more than a margin: a one-sided test, and
the bound that belongs to it.

About means over seeds, on the scale of ratios: "the mean MQL of `a` is at most (1 + margin) times
that of `b`". On shared seeds the differences a - (1 + margin) b are tested with Student's t, which
Hall's transformation frees of their skewness: short trainings have a tail of bad seeds, and the
plain test errs in 7 instead of 5 of 100 cases there. The bound is the least ratio that the test
does not allow to be exceeded: it is below 1 + margin exactly where the test claims.

Source: Hall, "On the Removal of Skewness by Transformation", Journal of the Royal Statistical
Society B 54 (1992).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.spec.margin import LEVEL
from tuner.verdict.stats.intervals import LEAST_RUNS, Interval, mean_interval

Array = np.ndarray[Any, Any]

_ROUNDING = 1e-12
"""Relative to the mean: a spread no greater than that is none."""
_FIRST_STEP, _FARTHEST, _FINE = 1e-3, 100.0, 1e-13
"""Of the search for the bound, in units of the ratio."""
_BEYOND = 1e50
"""All measure: only a stranger writes such figures, whose powers no float holds."""
_LARGEST_LOG = 700.0
"""Of a quotient that a float can hold."""


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
        return self.p < self.level


def no_worse(
    a: Mapping[int, float], b: Mapping[int, float], *, margin: float, level: float = LEVEL
) -> NoWorse | None:
    """Test "a's mean is at most (1 + margin) times b's" on the seeds that both have; None where
    they share too few, or figures have no ratio: one is not finite, or b's mean is 0.

    Args:
        a: figures above 0, by seed, lower being better.
        b: those of what it is held against.
        margin: how much worse still counts as no worse, relative.
        level: the chance of a wrong claim.
    """
    x, y = shared(a, b)
    if len(x) < LEAST_RUNS or not (np.isfinite(x) & np.isfinite(y)).all() or not y.mean() > 0:
        return None
    return NoWorse(
        ratio=float(x.mean() / y.mean()),
        bound=_bound(x, y, level),
        p=p_below(x - (1 + margin) * y),
        margin=margin,
        level=level,
        pairs=len(x),
    )


def p_apart(a: Sequence[float], b: Sequence[float], *, margin: float) -> float:
    """Of the same test where a and b ran on seeds of their own (Welch's degrees of freedom, the
    same transformation); 1 where either has too few figures, or b's mean is not above 0.

    >>> from tuner.verdict.stats.noninferiority import p_apart
    >>> p_apart([0.80, 0.81, 0.79, 0.80, 0.80], [0.81, 0.80, 0.82, 0.81, 0.80], margin=0.01) < 0.04
    True
    """
    x, y = np.array(a, dtype=float), (1 + margin) * np.array(b, dtype=float)
    both = np.concatenate([x, y])
    measured = (np.abs(both) < _BEYOND).all()  # which nan is not
    if min(len(x), len(y)) < LEAST_RUNS or not measured or not y.mean() > 0:
        return 1.0
    variance, third, squares = 0.0, 0.0, 0.0
    for sign, values in ((1, x), (-1, y)):
        of_mean, third_of_mean = _moments(values)
        variance += of_mean
        squares += of_mean**2 / (len(values) - 1)
        third += sign * third_of_mean
    rounding, lead = _ROUNDING * float(np.abs(both).max()), float(x.mean() - y.mean())
    degrees = variance**2 / squares if squares else 1.0
    return _freed_of_skewness(lead, variance, third, degrees, rounding)


def misses_more(a: tuple[int, int], b: tuple[int, int], *, one_in: int = 20) -> bool:
    """Whether a surely misses more often than b, of which each is misses and runs: Fisher's exact
    test, one-sided, wrong once in so many. A single failure says nothing of a configuration.

    >>> from tuner.verdict.stats.noninferiority import misses_more
    >>> [misses_more((misses, 90), (0, 90)) for misses in (1, 4, 5)]
    [False, False, True]
    """
    misses = a[0] + b[0]
    as_many = range(a[0], min(a[1], misses) + 1)
    ways = sum(math.comb(a[1], n) * math.comb(b[1], misses - n) for n in as_many)
    return one_in * ways < math.comb(a[1] + b[1], misses)  # no float holds such numbers


def paired_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> Interval | None:
    """The geometric mean of a's figures over b's, such as times, on the seeds that both have, with
    its interval (t, on logarithms); None where they share too few. What is not above 0 has no
    logarithm, and is left out.
    """
    x, y = shared(a, b)
    above = (x > 0) & (y > 0)
    x, y = x[above], y[above]
    found = mean_interval(np.log(x) - np.log(y)) if len(x) >= LEAST_RUNS else None
    # Of times beyond all measure, which only a stranger writes, there is no quotient.
    if found is None or max(abs(found.low), abs(found.high)) > _LARGEST_LOG:
        return None
    middle, low, high = map(math.exp, (found.estimate, found.low, found.high))
    return Interval(middle, low, high, found.runs)


def shared(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[Array, Array]:
    """The figures of both on the seeds that both have, in the same order."""
    seeds = sorted(a.keys() & b.keys())
    return np.array([a[seed] for seed in seeds]), np.array([b[seed] for seed in seeds])


def p_below(differences: Array) -> float:
    """Of a mean below 0, one-sided: Student's t, freed of skewness."""
    n, mean = len(differences), float(differences.mean())
    rounding = _ROUNDING * float(np.abs(differences).max()) / math.sqrt(n)
    return _freed_of_skewness(mean, *_moments(differences), n - 1, rounding)


def _moments(values: Array) -> tuple[float, float]:
    """The variance of the mean of `values` (n,), and its third central moment."""
    n, off = len(values), values - values.mean()
    variance = float((off**2).sum()) / (n - 1) / n
    return variance, float((off**3).sum()) / ((n - 1) * (n - 2)) / n


def _freed_of_skewness(
    mean: float, variance: float, third: float, degrees: float, rounding: float
) -> float:
    """Of a mean below 0, with its variance and third central moment: Student's, transformed."""
    from scipy.special import stdtr

    if math.sqrt(variance) <= rounding:
        return 0.0 if mean < 0 else 1.0
    t, skewness = mean / math.sqrt(variance), third / max(variance**1.5, 5e-324)
    bend = skewness / 3
    # A cubic that rises everywhere, so that what is better never has the greater p.
    straight = t + bend * t**2 + bend**2 * t**3 / 3 + skewness / 6
    return float(stdtr(degrees, straight))


def _bound(x: Array, y: Array, level: float) -> float:
    """The least ratio r above the measured one for which the test of x - r y rejects."""
    ratio = float(x.mean() / y.mean())
    if p_below(x - ratio * y) <= level:  # there is no noise at all
        return ratio
    step = _FIRST_STEP
    while p_below(x - (ratio + step) * y) > level:
        step *= 2
        if step > _FARTHEST:
            return math.inf
    least = 0.0
    while step - least > _FINE:  # scipy.optimize takes half a second to import
        middle = (least + step) / 2
        if p_below(x - (ratio + middle) * y) > level:
            least = middle
        else:
            step = middle
    return ratio + step
