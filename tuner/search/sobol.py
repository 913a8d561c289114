"""Sobol points by trial number: however many workers ask,
together they walk one well-spread sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

STRIDE = 7919
"""Between the points that are tried for one trial number after its own:
a prime, so that numbers rarely collide."""


class SobolPoints:
    """A scrambled Sobol sequence in the unit cube of `dimensions`, fixed by `seed`.

    Sources: Sobol (1967), Owen (1998) for the scrambling; scipy's implementation.
    """

    def __init__(self, dimensions: int, seed: int) -> None:
        self._dimensions = dimensions
        self._seed = seed

    def point(self, index: int) -> list[float]:
        """The point number `index`, `dimensions` coordinates from 0 to 1."""
        from scipy.stats.qmc import Sobol

        sequence = Sobol(self._dimensions, scramble=True, rng=np.random.default_rng(self._seed))
        if index:
            sequence.fast_forward(index)
        return [float(x) for x in sequence.random(1)[0]]

    def others(self, index: int, count: int) -> Iterator[list[float]]:
        """Up to `count` points for the same trial when
        its own will not do, far along the sequence.
        """
        for again in range(1, count + 1):
            yield self.point(index + again * STRIDE)
