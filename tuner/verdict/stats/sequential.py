"""Looks at the data before its planned end, without a greater chance of a false claim.

A group-sequential design with Lan and DeMets' alpha spending (Biometrika 70, 1983) of O'Brien and
Fleming's kind: early looks may claim almost only what is overwhelming, the last look tests at
nearly the full level. The boundaries come from the recursive integration of Armitage, McPherson and
Rowe (1969), and t tests enter by their p value, the "significance level approach" of Jennison and
Turnbull, "Group Sequential Methods" (2000), section 3.3.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tuner.verdict.stats.intervals import LEAST_RUNS

FRACTIONS = (0.6, 0.8, 1.0)
"""When a verification that may stop early looks: after these shares of its seeds."""
_HALF_WIDTH = 8.0
_STEP = 0.02


def looks_for(seeds: int) -> tuple[int, ...]:
    """After how many seeds to look, the last being all of them:
    never before an interval is possible.
    """
    planned = {max(LEAST_RUNS, math.ceil(fraction * seeds)) for fraction in FRACTIONS[:-1]}
    return (*sorted(look for look in planned if look < seeds), seeds)


def spent(alpha: float, fraction: float) -> float:
    """The error that may have been spent once `fraction` of the data is in; all of `alpha` at 1."""
    from scipy.special import ndtr, ndtri

    if fraction >= 1:
        return alpha
    return float(2 * ndtr(ndtri(alpha / 2) / math.sqrt(fraction)))


@functools.lru_cache(maxsize=256)
def nominal_levels(alpha: float, looks: tuple[int, ...]) -> tuple[float, ...]:
    """At which level to test, two-sided, at each look (after so many seeds), so that all together
    err with `alpha`.

    One look is a fixed design: its level is `alpha`.
    """
    if len(looks) == 1:
        return (alpha,)
    from scipy.optimize import brentq
    from scipy.special import ndtr

    fractions = [look / looks[-1] for look in looks]
    grid = np.arange(-_HALF_WIDTH, _HALF_WIDTH + _STEP / 2, _STEP)
    density = _normal_density(grid)
    """Of the standardised mean at the current look, for those that have not stopped before."""
    levels: list[float] = []
    before = 0.0
    for index, fraction in enumerate(fractions):
        if index:
            density = _next_look(grid, density, fractions[index - 1], fraction)
        target = spent(alpha, fraction) - before
        excess = functools.partial(_excess, grid, density, target)
        boundary = float(brentq(excess, 0.5, _HALF_WIDTH - 1))
        levels.append(float(2 * ndtr(-boundary)))
        density = np.where(np.abs(grid) < boundary, density, 0.0)
        before += target
    return tuple(levels)


def _excess(grid: np.ndarray, density: np.ndarray, target: float, boundary: float) -> float:
    """The mass beyond plus or minus `boundary` that is more than `target`."""
    return _outside(grid, density, boundary) - target


def _outside(grid: np.ndarray, density: np.ndarray, boundary: float) -> float:
    """The mass beyond plus or minus `boundary`,
    by linear interpolation of the cumulated density.
    """
    cumulated = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * _STEP)])
    low, high = np.interp([-boundary, boundary], grid, cumulated)
    return float(cumulated[-1] - (high - low))


def _next_look(grid: np.ndarray, density: np.ndarray, at: float, then: float) -> np.ndarray:
    """The density of the standardised mean at fraction `then`, from that at fraction `at`."""
    share = math.sqrt(at / then)
    spread = math.sqrt(1 - at / then)
    kernel = _normal_density((grid[:, None] - share * grid[None, :]) / spread) / spread
    result: np.ndarray = kernel @ density * _STEP
    return result


def _normal_density(z: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return result
