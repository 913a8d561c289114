"""Medians with bootstrap intervals, means with Student's, and what an interval is.

The percentile bootstrap with a fixed number of resamples and a fixed seed: the same runs give the
same interval. Of few runs it is too narrow (nine in ten instead of 95 in a hundred for ten runs),
so its tails are expanded as in Hesterberg, "What Teachers Should Know About the Bootstrap", The
American Statistician 69 (2015), section 4.3. Not BCa: its acceleration comes from the jackknife,
which is inconsistent for the median (Efron and Tibshirani, "An Introduction to the Bootstrap",
1993, section 11.6).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 20261120
LEAST_RUNS = 5
"""Fewer runs give no interval: a resampled median of four
would be little more than their least and their greatest."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval, and how many runs (or pairs of runs) it comes from."""

    estimate: float
    low: float
    high: float
    runs: int

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __format__(self, form: str) -> str:
        """As a number is formatted, with its interval: `0.38 [0.36, 0.41]` of `.2f`."""
        return f"{self.estimate:{form}} [{self.low:{form}}, {self.high:{form}}]"

    def as_dict(self) -> dict[str, float]:
        """`{"median", "low", "high"}`, the form in which verified figures travel."""
        return {"median": self.estimate, "low": self.low, "high": self.high}

    def as_estimate(self) -> dict[str, float]:
        """`{"estimate", "low", "high"}`, the form of what is no median itself:
        ratios and differences.
        """
        return {"estimate": self.estimate, "low": self.low, "high": self.high}


def median_interval(values: ArrayLike) -> Interval | None:
    """The median of `values` (n,) with its interval; None for fewer than `LEAST_RUNS` values."""
    # Sorted, so that the order in which runs ended cannot change a figure.
    x = np.sort(np.asarray(values, dtype=float))
    return (
        percentile_interval(float(np.median(x)), _medians_of_sorted(x), len(x))
        if len(x) >= LEAST_RUNS
        else None
    )


@functools.lru_cache(maxsize=16)
def resampled_runs(n: int, resamples: int = RESAMPLES) -> NDArray[np.intp]:
    """Which runs each resample holds: (resamples, n)
    indices below `n`, the same ones every time.
    """
    chosen = np.random.default_rng(SEED).integers(0, n, size=(resamples, n))
    chosen.flags.writeable = False
    return chosen


def _medians_of_sorted(x: Array) -> Array:
    """`resampled_medians` of ascending values, without sorting any resample: which two of them are
    in its middle depends on their number alone.
    """
    below, above = _middles(len(x))
    middle: Array = (x[below] + x[above]) / 2
    return middle


@functools.lru_cache(maxsize=16)
def _middles(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of each resample of `n` ascending values, which are the two in its middle: (resamples,)."""
    drawn = np.sort(resampled_runs(n), axis=1)
    # Copies: the whole of it, which nobody asks for again, is a hundred times as large.
    return drawn[:, (n - 1) // 2].copy(), drawn[:, n // 2].copy()


def resampled_medians(values: Array, resamples: int = RESAMPLES) -> Array:
    """Medians of the resamples of `values` (n,): (resamples,)."""
    n = len(values)
    drawn = np.sort(values[resampled_runs(n, resamples)], axis=1)
    middle: Array = (drawn[:, (n - 1) // 2] + drawn[:, n // 2]) / 2
    return middle


def percentile_interval(estimate: float, resampled: ArrayLike, runs: int) -> Interval:
    """The middle of resampled estimates (B,): `CONFIDENCE` of them, a little more where they come
    from few `runs`.
    """
    from scipy.special import ndtr

    quantile = t_beyond((1 - CONFIDENCE) / 2, runs - 1) * math.sqrt(runs / (runs - 1))
    tail = float(ndtr(-quantile))
    low, high = np.quantile(np.asarray(resampled, dtype=float), [tail, 1 - tail])
    return Interval(estimate, float(low), float(high), runs)


def mean_interval(values: ArrayLike) -> Interval | None:
    """The mean of `values` (n,) with Student's interval; None for fewer than two."""
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < 2:  # noqa: PLR2004 - a spread needs two
        return None
    mean, error = float(x.mean()), float(x.std(ddof=1)) / math.sqrt(n)
    half = error * t_beyond((1 - CONFIDENCE) / 2, n - 1)
    return Interval(mean, mean - half, mean + half, n)


def t_beyond(share: float, freedom: float) -> float:
    """What Student's t with so many degrees of freedom exceeds in this share of cases.

    Not `scipy.stats`, which takes a quarter of a second to import: more than most commands need
    for all else.
    """
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, share))


def finite(value: float | None) -> float | None:
    """The value for JSON, which knows no infinite number."""
    return value if value is not None and math.isfinite(value) else None
