"""The mean of a figure over truths that count alike, whatever their searches."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np


def over_truths(by_truth: Collection[Sequence[float]]) -> tuple[float, float]:
    """The mean of the truths' means, and its standard error: the truths are the ones there are, the
    searches of each vary. The error is NaN where a truth has fewer than two.
    """
    mean = float(np.mean([np.mean(each) for each in by_truth]))
    if min(map(len, by_truth)) < 2:
        return mean, math.nan
    error = math.sqrt(sum(np.var(each, ddof=1) / len(each) for each in by_truth)) / len(by_truth)
    return mean, error


def ratio_over_truths(apart: Collection[Sequence[float]]) -> tuple[float, float, float]:
    """Of differences of logarithms: their mean as a ratio, and its 95 % interval."""
    mean, error = over_truths(apart)
    middle, low, high = (math.exp(mean + side * 1.96 * error) for side in (0, -1, 1))
    return middle, low, high
