"""What one more search would come to, after several that were alike.

How often it succeeds: the one-sided limit of Clopper and Pearson, "The use of confidence or
fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934). What it then takes:
a prediction interval of Student's t for one more draw, on logarithms (Hahn and Meeker,
"Statistical Intervals", 1991, section 4.7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.verdict.stats.intervals import CONFIDENCE, Interval, t_beyond

PREDICTED = 0.9
"""How often one more draw lies in its interval."""
LEAST_DRAWS = 3
"""Two draws say next to nothing of how far the third one is off."""


def chance_at_least(successes: int, draws: int) -> float:
    """Below what chance of a success so many of so many draws are too lucky, at `CONFIDENCE`."""
    from scipy.special import betaincinv

    if successes == 0:
        return 0.0
    return float(betaincinv(successes, draws - successes + 1, 1 - CONFIDENCE))


def next_draw(values: Sequence[float]) -> Interval | None:
    """Where one more draw beside these positive `values` (n,) lies in `PREDICTED` of all cases,
    around their geometric mean; None for fewer than `LEAST_DRAWS`, and where one is 0 or infinite.
    """
    n = len(values)
    if n < LEAST_DRAWS or not all(0 < value < math.inf for value in values):
        return None
    logs = np.log(np.sort(np.asarray(values, dtype=float)))
    middle = float(logs.mean())
    wide = float(logs.std(ddof=1)) * math.sqrt(1 + 1 / n) * t_beyond((1 - PREDICTED) / 2, n - 1)
    return Interval(math.exp(middle), math.exp(middle - wide), math.exp(middle + wide), n)
