"""Tests of paired differences, their intervals,
and the correction for asking many questions at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tuner.verdict.stats.intervals import t_beyond

ALPHA = 0.05
"""The chance of claiming any difference at all, in a family of questions, where there is none."""

_EXACT_UP_TO = 16
"""Pairs up to which all sign patterns are enumerated (65,536 of them)."""
_PATTERNS = 99_999
_SEED = 20261120


def sign_flip_p(differences: ArrayLike) -> float:
    """Two-sided p of the paired permutation test on the mean of `differences` (n,).

    Where two configurations do not differ, a pair's difference is as likely with the other sign. So
    the mean is held against the means under all 2^n patterns of signs (Fisher, "The Design of
    Experiments", 1935, section 21): exact, whatever the distribution's shape. Beyond 16 pairs
    99,999 random patterns of a fixed seed stand for all, with the correction of Phipson and Smyth
    (2010), so that no p is 0.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) == 0:
        return 1.0
    low, high = _not_excluded(d)
    return float(((low <= 0) & (high >= 0)).mean())


def sign_flip_interval(differences: ArrayLike, level: float) -> tuple[float, float]:
    """The true means that the same test of `differences` (n,)
    does not reject at `level`: a confidence interval.

    A true mean of t is tested by flipping signs of `differences - t`. Under one pattern of signs
    this is as extreme as what was seen wherever t lies between the mean of the flipped differences
    and that of the others. Each of these ranges holds the mean of all, so what is not rejected is
    one interval around it, whose ends are means of some of the differences: no search is needed. It
    holds 0 where `sign_flip_p` is above `level`, and nowhere else. A test inverted so is what
    Hodges and Lehmann ("Estimates of location based on rank tests", 1963) and Garthwaite
    ("Confidence intervals from randomization tests", 1996) speak of. An end is infinite where so
    few pairs cannot reach the level.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) == 0:
        return -math.inf, math.inf
    low, high = _not_excluded(d)
    needed = math.floor(level * len(low)) + 1
    """So many patterns must be as extreme for a mean to be kept."""
    mean = float(d.mean())
    least = float(np.partition(low, needed - 1)[needed - 1])
    greatest = -float(np.partition(-high, needed - 1)[needed - 1])
    return min(least, mean), max(greatest, mean)


def _not_excluded(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each pattern of signs, from which to which true mean
    it is as extreme as what was seen: both (patterns,).
    """
    n = len(d)
    signs = _signs(n)
    flipped = (n - signs.sum(axis=1)) / 2
    sum_of_flipped = (d.sum() - signs @ d) / 2
    some = (flipped > 0) & (flipped < n)
    of_flipped = sum_of_flipped[some] / flipped[some]
    of_others = (d.sum() - sum_of_flipped[some]) / (n - flipped[some])
    # What differs from no difference by rounding alone is none.
    rounding = 1e-12 * np.abs(d).max()
    low, high = np.minimum(of_flipped, of_others), np.maximum(of_flipped, of_others)
    low[np.abs(low) <= rounding] = 0.0
    high[np.abs(high) <= rounding] = 0.0
    # All signs or none turned around: as extreme whatever the mean. What was seen counts beside
    # random patterns.
    always = len(signs) - len(low) + (n > _EXACT_UP_TO)
    return np.append(low, np.full(always, -np.inf)), np.append(high, np.full(always, np.inf))


@functools.lru_cache(maxsize=8)
def _signs(n: int) -> np.ndarray:
    """All patterns of n signs, or many random ones: (patterns, n)."""
    if n > _EXACT_UP_TO:
        return np.random.default_rng(_SEED).choice((-1.0, 1.0), size=(_PATTERNS, n))
    bits = np.arange(2**n, dtype=np.uint32)[:, None] >> np.arange(n, dtype=np.uint32)
    return np.asarray(1.0 - 2.0 * (bits & 1))


def paired_t_p(differences: ArrayLike) -> float:
    """Two-sided p of Student's paired t test on `differences` (n,):
    a p below `sign_flip_p`'s least is possible.

    It assumes that the differences are about normal.
    """
    from scipy import stats

    d = np.asarray(differences, dtype=float)
    if len(d) < 2 or not np.ptp(d) > 0:  # noqa: PLR2004 - a spread needs two
        return 1.0 if len(d) < 2 or not d.any() else 0.0  # noqa: PLR2004
    return float(stats.ttest_1samp(d, 0.0).pvalue)


def paired_t_interval(differences: ArrayLike, level: float) -> tuple[float, float]:
    """The true means that the same test of `differences` (n,) does not reject at `level`."""
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n < 2:  # noqa: PLR2004 - a spread needs two
        return -math.inf, math.inf
    mean = float(d.mean())
    half = t_beyond(level / 2, n - 1) * float(np.std(d, ddof=1)) / math.sqrt(n)
    return mean - half, mean + half


def wilcoxon_p(differences: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on `differences` (n,), shown beside the others."""
    from scipy import stats

    d = np.asarray(differences, dtype=float)
    return float(stats.wilcoxon(d).pvalue) if len(d) and d.any() else 1.0


def least_p(pairs: int) -> float:
    """The least p that `sign_flip_p` can give for that many pairs: all differences on one side."""
    return 2.0 / 2**pairs if pairs <= _EXACT_UP_TO else 1.0 / (_PATTERNS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values: claiming those at or under alpha errs anywhere in the family with chance
    alpha at most.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
    Statistics 6 (1979).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = worst
    return adjusted
