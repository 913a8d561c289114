"""What a confirmation will ask of a configuration, by the noise that its runs are believed to have.

The test is that of `tuner.verdict.stats.noninferiority`, taken to be one of normal logarithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.spec.margin import LEVEL

Array = np.ndarray[Any, Any]


def asked_of(noise: Array, of_default: float, seeds: int) -> tuple[Array, Array]:
    """The variance of the difference from the default that a confirmation on so many seeds will
    see, and by how much that difference has to lie below the margin for it to claim "no worse";
    both like `noise`, the variance of one run of each configuration.
    """
    from scipy.special import stdtrit  # here: who only watches a launch does not wait for it

    error = (noise + of_default) / seeds
    return error, float(stdtrit(seeds - 1, 1 - LEVEL)) * np.sqrt(error)
