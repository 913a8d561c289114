"""Tests of paired differences, and the correction for asking many questions at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

ALPHA = 0.05
"""The chance of claiming any difference at all, in a family of questions, where there is none."""

_EXACT_UP_TO = 16
"""Pairs up to which all sign patterns are enumerated (65,536 of them)."""
_PATTERNS = 99_999
_SEED = 20261120


def sign_flip_p(differences: ArrayLike) -> float:
    """Two-sided p of the paired permutation test on the mean of `differences` (n,).

    Where two configurations do not differ, a pair's difference is as likely with the other sign. So the mean is held
    against the means under all 2^n patterns of signs (Fisher, "The Design of Experiments", 1935, section 21): exact,
    whatever the distribution's shape. Beyond 16 pairs 99,999 random patterns of a fixed seed stand for all, with the
    correction of Phipson and Smyth (2010), so that no p is 0.
    """
    d = np.asarray(differences, dtype=float)
    n = len(d)
    if n == 0:
        return 1.0
    signs = _signs(n)
    observed = abs(d.mean())
    # What differs by rounding alone is the same mean.
    as_extreme = np.abs(signs @ d / n) >= observed * (1 - 1e-12)
    if n <= _EXACT_UP_TO:
        return float(as_extreme.mean())
    return float((as_extreme.sum() + 1) / (_PATTERNS + 1))


@functools.lru_cache(maxsize=8)
def _signs(n: int) -> np.ndarray:
    """All patterns of n signs, or many random ones: (patterns, n)."""
    if n > _EXACT_UP_TO:
        return np.random.default_rng(_SEED).choice((-1.0, 1.0), size=(_PATTERNS, n))
    bits = np.arange(2**n, dtype=np.uint32)[:, None] >> np.arange(n, dtype=np.uint32)
    return np.asarray(1.0 - 2.0 * (bits & 1))


def paired_t_p(differences: ArrayLike) -> float:
    """Two-sided p of Student's paired t test on `differences` (n,): a p below `sign_flip_p`'s least is possible.

    It assumes that the differences are about normal. Needed where looks are taken before the planned end.
    """
    from scipy import stats

    d = np.asarray(differences, dtype=float)
    if len(d) < 2 or not np.ptp(d) > 0:  # noqa: PLR2004 - a spread needs two
        return 1.0 if len(d) < 2 or not d.any() else 0.0  # noqa: PLR2004
    return float(stats.ttest_1samp(d, 0.0).pvalue)


def wilcoxon_p(differences: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on `differences` (n,), shown beside the others."""
    from scipy import stats

    d = np.asarray(differences, dtype=float)
    return float(stats.wilcoxon(d).pvalue) if len(d) and d.any() else 1.0


def least_p(pairs: int) -> float:
    """The least p that `sign_flip_p` can give for that many pairs: all differences on one side."""
    return 2.0 / 2**pairs if pairs <= _EXACT_UP_TO else 1.0 / (_PATTERNS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values: claiming those at or under alpha errs anywhere in the family with chance alpha at most.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6 (1979).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = worst
    return adjusted
