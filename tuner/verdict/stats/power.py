"""How large a difference a paired test finds, in standard deviations of the differences."""

from __future__ import annotations

import functools
import math

import numpy as np

POWER = 0.9
"""How often a difference that is called detectable would be found."""

_EXACT_UP_TO = 12
"""Pairs up to which the permutation test itself is tried on drawn differences;
of more it is close to Student's."""
_DRAWS = 2000
_SEED = 20261122


@functools.lru_cache(maxsize=64)
def t_shift(n: int, level: float) -> float:
    """The mean of n normal differences that Student's paired
    t test finds at `level` with `POWER` (noncentral t).
    """
    from scipy import optimize, stats

    needed = float(stats.t.isf(level / 2, n - 1))

    def lacking(noncentrality: float) -> float:
        return float(stats.nct.sf(needed, n - 1, noncentrality)) - POWER

    greatest = 2 * (needed + float(stats.t.isf(1 - POWER, n - 1)))
    return float(optimize.brentq(lacking, 0.0, greatest, xtol=1e-6)) / math.sqrt(n)


@functools.lru_cache(maxsize=64)
def sign_flip_shift(n: int, level: float) -> float:
    """The same of the permutation test, whose p takes few
    values where pairs are few: by simulation, then.

    With ten pairs and a level of 0.0025 only ten differences of one sign are enough, which asks for
    a third more.
    """
    wanted = t_shift(n, level)
    if n > _EXACT_UP_TO:
        return wanted
    draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, n))
    low, high = 0.0, 8 * wanted
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if _found(draws + middle, level) >= POWER else (middle, high)
    return high


def _found(differences: np.ndarray, level: float) -> float:
    """The share of samples (samples, n) in which a two-sided
    permutation test finds a difference at `level`.
    """
    n = differences.shape[1]
    bits = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1  # the other half mirrors these
    sums = np.abs(differences @ (1.0 - 2.0 * bits).T)
    observed = np.abs(differences.sum(axis=1, keepdims=True))
    return float(np.mean((sums >= observed * (1 - 1e-12)).mean(axis=1) <= level))
