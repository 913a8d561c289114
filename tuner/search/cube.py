"""The unit cube of a space, where each configuration has one place."""

from __future__ import annotations

from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.spec.ranges import Array
from tuner.spec.space import MIDDLE, SearchSpace


class Cube:
    """Points of the cube, and the places of the configurations that they stand for."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._columns: dict[str, slice] = {}
        first = 0
        for name, r in space.ranges.items():
            self._columns[name] = slice(first, first + r.coordinates)
            first += r.coordinates
        self.dimensions = first

    def snapped(self, x: Array) -> Array:
        """Where the configurations of these points are seen, (rows, coordinates) both: what has
        levels in the middle of their parts of the range, or on the corner of one choice, what
        means exactly 0 at its end, and what is not there in the middle.
        """
        x = np.clip(x, 0.0, 1.0)
        for name, r in self._space.ranges.items():
            columns = self._columns[name]
            x[:, columns] = r.snapped(x[:, columns])
        for name, r in self._space.ranges.items():
            for other, values in r.condition.items():
                missing = ~self._is_one_of(x, other, values)
                x[missing, self._columns[name]] = MIDDLE
        return x

    def _is_one_of(self, x: Array, name: str, values: tuple[Any, ...]) -> Array:
        """In which rows a hyperparameter with levels has one of these values."""
        r = self._space.ranges[name]
        column = x[:, self._columns[name]]
        found = np.zeros(len(x), bool)
        for value in values:
            place = np.array(r.place(r.encode(value)))
            found |= np.isclose(column, place).all(axis=1)
        return found


# What samplers have in common that suggest all parameters of a space at once.


class WholeSpaceSampler(BaseSampler):
    """A sampler whose `sample_relative` gives every parameter of its space."""

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        # Only reached for a parameter outside the space, which no study of ours has.
        return RandomSampler().sample_independent(study, trial, param_name, param_distribution)
