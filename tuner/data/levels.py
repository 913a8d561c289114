"""Quantile levels that belong together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations


def symmetric_pairs(levels: Sequence[float]) -> list[tuple[int, int]]:
    """Places of the levels q and 1 - q where both are there, the widest interval first.

    Args:
        levels: ascending.
    """
    return [
        (low, high)
        for low, high in combinations(range(len(levels)), 2)
        if math.isclose(levels[low] + levels[high], 1.0, abs_tol=1e-9)
    ]
