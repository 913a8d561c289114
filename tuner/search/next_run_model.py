"""The model of all runs that a decision on the next one asks, also of places where nothing ran.

The figure of a configuration is a smooth function of where it lies, and an effect of its own
(`tuner.search.repeated_runs`). The default's own effect is free: people chose it, so its neighbours
are worse than it.

Source: Rasmussen and Williams (2006), chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from tuner.search.gaussian_process import centre_and_scale
from tuner.search.past_runs import Configurations, PastRun, Place
from tuner.search.repeated_runs import Repeated, Settings, probable_settings

Array = np.ndarray[Any, Any]

TIME, MQL = 0, 1
"""The columns of `Configurations.mean`."""
OF_DEFAULT = (0.0, 1.0)
"""The least variance of the default's own effect, in units of each figure's."""
FIT_ROWS, ITERATIONS = 150, 40
"""Settings are fitted to so many configurations at most, with so many steps."""
ROWS = 400
"""What is believed follows from so many configurations at most: it takes time with their cube."""
FIRST_FIT, GROWTH, LATEST = 11, 1.15, 40
"""Settings are fitted again when there are so many runs, then with each increase by this factor, or
by this number where that is less."""

_LEAST_VARIANCE = 1e-12
_MOST_EXPLAINED = 0.9999


@dataclass(frozen=True, slots=True)
class Of:
    """What is believed of candidates, and with the default: means, variances and covariances."""

    mean: Array
    variance: Array
    with_default: Array
    default: float
    of_default: float

    @property
    def apart(self) -> Array:
        """Variance of the difference from the default."""
        apart = self.variance + self.of_default - 2 * self.with_default
        found: Array = np.maximum(apart, _LEAST_VARIANCE)
        return found

    def explained(self, noise: Array) -> Array:
        """How much of that variance a figure with this noise would explain."""
        moved = (self.variance - self.with_default) ** 2 / (self.variance + noise)
        found: Array = np.minimum(moved, _MOST_EXPLAINED * self.apart)
        return found


@dataclass(frozen=True, slots=True)
class Fitted:
    """The settings of one figure, and its mean and standard deviation over configurations."""

    settings: Settings
    centre: float
    scale: float


class Fits:
    """Settings of both figures. They follow from the runs that they are fitted to: what is kept
    saves time and changes no answer.
    """

    def __init__(self) -> None:
        self._past: Sequence[PastRun] = ()
        self._found: tuple[Fitted, ...] = ()

    def of(self, past: Sequence[PastRun], default: Place) -> tuple[Fitted, ...]:
        """Those of time and MQL, by these runs."""
        if past != self._past:
            ran = Configurations.of(past, default)
            some = ran.taken(promising(ran, FIT_ROWS))
            self._found = tuple(_fitted(ran, some, figure) for figure in (TIME, MQL))
            self._past = past
        return self._found


def fitted_until(runs: int) -> int:
    """To how many of so many runs the settings are fitted: the first ones."""
    until = FIRST_FIT
    while (more := min(math.ceil(until * GROWTH), until + LATEST)) <= runs:
        until = more
    return until


class Figure:
    """What is believed of the logarithm of time or of MQL, of all places together."""

    def __init__(self, ran: Configurations, figure: int, fitted: Fitted) -> None:
        self._fitted, self._settings = fitted, fitted.settings
        self._where, self._row = ran.where, ran.default
        length = ran.length if figure == MQL else np.zeros(len(ran.runs))
        self._effects = np.full(len(ran.runs), self._settings.effect)
        self._effects[ran.default] = max(self._settings.effect, OF_DEFAULT[figure])
        kernel = self._settings.smooth(ran.where, ran.where)
        kernel[np.diag_indices_from(kernel)] += (
            self._effects + self._settings.noise(length) / ran.runs
        )
        self._lower = np.linalg.cholesky(kernel)
        z = (ran.mean[:, figure] - fitted.centre) / fitted.scale
        self._weights = cho_solve((self._lower, True), z)

    def noise(self, length: Array) -> Array:
        """The variance of one run, by the length of the training."""
        found: Array = self._fitted.scale**2 * self._settings.noise(length)
        return found

    def of(self, tried: Array, new: Array) -> Of:
        """Of configurations that ran, by their rows, and of new places after them."""
        x = np.vstack([self._where[tried], new])
        n, row = len(tried), self._row
        cross = self._settings.smooth(x, self._where)
        cross[np.arange(n), tried] += self._effects[tried]
        effects = np.full(len(x), self._settings.effect)
        effects[:n] = self._effects[tried]
        half = solve_triangular(self._lower, cross.T, lower=True)
        own = self._settings.smooth(self._where[[row]], self._where)
        own[0, row] += self._effects[row]
        of_own = solve_triangular(self._lower, own.T, lower=True)[:, 0]
        shared = self._settings.smooth(x, self._where[[row]])[:, 0]
        shared[:n][tried == row] += self._effects[row]
        centre, scale = self._fitted.centre, self._fitted.scale
        signal = self._settings.signal
        left = float(signal + self._effects[row] - of_own @ of_own)
        return Of(
            centre + scale * (cross @ self._weights),
            scale**2 * np.maximum(signal + effects - (half * half).sum(axis=0), _LEAST_VARIANCE),
            scale**2 * (shared - half.T @ of_own),
            centre + scale * float((own @ self._weights)[0]),
            scale**2 * max(left, _LEAST_VARIANCE),
        )


def promising(ran: Configurations, count: int) -> Array:
    """The rows of so many configurations at most, in their order: the default, what ran often, and
    what is fast and good.
    """
    beyond = np.maximum(ran.mean - ran.mean[ran.default], 0.0) @ np.array([0.5, 20.0])
    beyond = beyond - 0.5 * np.minimum(ran.runs, 3)
    beyond[ran.default] = -np.inf
    return np.sort(np.argsort(beyond, kind="stable")[:count])


def _fitted(ran: Configurations, some: Configurations, figure: int) -> Fitted:
    """By the spread of all configurations, and settings that fit some of them."""
    mean = ran.mean[:, figure]
    centre, scale = centre_and_scale(mean)
    data = Repeated(
        where=some.where,
        mean=(some.mean[:, figure] - centre) / scale,
        runs=some.runs,
        squares=some.squares[:, figure] / scale**2,
        length=some.length if figure == MQL else np.zeros(len(some.runs)),
    )
    return Fitted(probable_settings(data, ITERATIONS), centre, scale)
