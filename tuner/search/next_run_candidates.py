"""New places in the unit cube that a search may go to next."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from tuner.search.cube import Cube
from tuner.search.past_runs import Place
from tuner.spec.space import SearchSpace

Array = np.ndarray[Any, Any]

NEW = 150
"""Candidates."""
MOVED = 0.6
"""How probably a coordinate differs from that of the place that a new one is drawn about."""


class NewPlaces:
    """Draws them for one space."""

    def __init__(self, space: SearchSpace) -> None:
        self._cube = Cube(space)

    @property
    def dimensions(self) -> int:
        return self._cube.dimensions

    def drawn(self, about: Array, known: Container[Place], random: np.random.Generator) -> Array:
        """New places, (rows, coordinates): three of four about the most promising ones, at
        distances of all sizes. Fewer where the space holds few.
        """
        near = NEW * 3 // 4
        base = about[random.integers(0, len(about), near)]
        width = 10 ** random.uniform(-2, -0.5, (near, 1))
        moved = base + random.normal(0, 1, base.shape) * width * (random.random(base.shape) < MOVED)
        anywhere = random.random((NEW - near, self.dimensions))
        drawn = self._cube.snapped(np.vstack([moved, anywhere])).round(9)
        places = dict.fromkeys(tuple(place) for place in drawn.tolist())
        new = [place for place in places if place not in known]
        return np.array(new).reshape(len(new), self.dimensions)
