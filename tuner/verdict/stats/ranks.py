"""How two scores rank the same configurations."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tuner.verdict.stats.intervals import Interval, percentile_interval, resampled_runs

LEAST_RANKED = 5
_RESAMPLES = 1999


def spearman(a: ArrayLike, b: ArrayLike) -> Interval | None:
    """Spearman's rank correlation of two scores (n,)
    with a bootstrap interval over the ranked things.

    None for fewer than 5, or where one score is the same for all.
    """
    from scipy import stats

    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(x) < LEAST_RANKED or not np.ptp(x) > 0 or not np.ptp(y) > 0:
        return None
    chosen = resampled_runs(len(x), _RESAMPLES)
    ranks_x, ranks_y = stats.rankdata(x[chosen], axis=1), stats.rankdata(y[chosen], axis=1)
    estimate = float(stats.spearmanr(x, y).statistic)
    return percentile_interval(estimate, _correlations(ranks_x, ranks_y), len(x))


def _correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Row-wise correlation of (B, n) with (B, n);
    a row without spread (always the same thing) is dropped.
    """
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    result: np.ndarray = (x * y).sum(axis=1)[scale > 0] / scale[scale > 0]
    return result
