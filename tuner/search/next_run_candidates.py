"""New places in the unit cube that a search may go to next."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from tuner.search.past_runs import Place
from tuner.spec.space import ZERO_SHARE, FloatRange, SearchSpace, SizeRange

Array = np.ndarray[Any, Any]

NEW = 150
"""Candidates."""
MOVED = 0.6
"""How probably a coordinate differs from that of the place that a new one is drawn about."""


class Cube:
    """The unit cube of a space, where each configuration has one place."""

    def __init__(self, space: SearchSpace) -> None:
        self._ranges = list(space.ranges.values())

    @property
    def dimensions(self) -> int:
        return len(self._ranges)

    def drawn(self, about: Array, known: Container[Place], random: np.random.Generator) -> Array:
        """New places, (rows, coordinates): three of four about the most promising ones, at
        distances of all sizes. Fewer where the space holds few.
        """
        near = NEW * 3 // 4
        base = about[random.integers(0, len(about), near)]
        width = 10 ** random.uniform(-2, -0.5, (near, 1))
        moved = base + random.normal(0, 1, base.shape) * width * (random.random(base.shape) < MOVED)
        anywhere = random.random((NEW - near, self.dimensions))
        drawn = self.snapped(np.vstack([moved, anywhere]))
        places = dict.fromkeys(tuple(place) for place in drawn.tolist())
        new = [place for place in places if place not in known]
        return np.array(new).reshape(len(new), self.dimensions)

    def snapped(self, x: Array) -> Array:
        """Where the configurations of these places are seen: sizes in the middle of their parts of
        the range, and all that means exactly 0 at its end.
        """
        x = np.clip(x, 0.0, 1.0)
        for i, r in enumerate(self._ranges):
            if isinstance(r, SizeRange):
                x[:, i] = (np.minimum(np.floor(x[:, i] * r.levels), r.levels - 1) + 0.5) / r.levels
            else:
                x[:, i] = _in_range(x[:, i], r)
        return x.round(9)


def _in_range(x: Array, r: FloatRange) -> Array:
    if r.low == r.high:
        return np.full(len(x), 0.5)
    return np.where(x < ZERO_SHARE, 0.0, x) if r.zero else x
