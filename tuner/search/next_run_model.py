"""The model of all runs that a decision on the next one asks, also of places where nothing ran.

The figure of a configuration is a smooth function of where it lies, and an effect of its own
(below). The default's own effect is free: people chose it, so its neighbours
are worse than it.

Source: Rasmussen and Williams (2006), chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.search.gaussian_process import (
    JITTER,
    LENGTH_PRIOR,
    NOISE_PRIOR,
    START_LENGTH,
    Distances,
    centre_and_scale,
    matern,
    most_probable,
    one_thread,
    unlikely,
)
from tuner.search.past_runs import Configurations, PastRun, Place, some_of

# A Gaussian process for configurations that ran once, or several times: what a figure is at each
# of them, and how surely, all together.


Array = np.ndarray[Any, Any]

EFFECT_PRIOR = (math.log(0.006), 0.6)
"""Of the logarithm of the variance of a configuration's own effect, in units of the figure's. With
ten times as much, luck in the runs of a configuration is believed to be its own effect
(docs/decisions/0008)."""
SLOPE_PRIOR = (1.5, 0.7)
"""Of how fast the noise's variance falls with the training's length, as a power of it. On the
reference job a seed moves MQL by 0.014 in trainings of 14 epochs, and by 0.006 in those of 40."""
GP_ROWS = 300
"""Settings are fitted to so many configurations at most; all of them count for what is said."""

_ITERATIONS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Runs by configuration: all arrays are (configurations,), but for `where`."""

    where: Array
    """(configurations, coordinates), in the unit cube."""
    mean: Array
    """Of the figure over the runs of each configuration."""
    runs: Array
    squares: Array
    """Sum of the squared differences of each configuration's runs from their mean."""
    length: Array
    """The logarithm of how long each one trains, relative to whatever is usual; zeros where the
    noise is the same everywhere."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of the figure at each configuration: a normal distribution of all of them
    together.
    """

    mean: Array
    covariance: Array
    noise: Array
    """The variance of a single run of each."""


@one_thread()
def believed(data: Repeated) -> Belief:
    """Fit the model and say what it makes of each configuration; deterministic."""
    from scipy.linalg import cho_factor, cho_solve

    centre, scale = centre_and_scale(data.mean)
    scaled = replace(data, mean=(data.mean - centre) / scale, squares=data.squares / scale**2)
    settings = probable_settings(_some_of(scaled), _ITERATIONS)
    noise = settings.noise(scaled.length)
    of_means = noise / scaled.runs
    kernel = settings.smooth(scaled.where, scaled.where)
    kernel[np.diag_indices_from(kernel)] += settings.effect + of_means
    # With N the noise of the means and C the covariance of what was seen, the posterior of what is
    # true has the mean z - N C^-1 z and the covariance N - N C^-1 N.
    inverse = cho_solve(cho_factor(kernel, lower=True), np.eye(len(kernel)))
    mean = scaled.mean - of_means * (inverse @ scaled.mean)
    covariance = np.diag(of_means) - of_means[:, None] * inverse * of_means[None, :]
    return Belief(centre + scale * mean, scale**2 * covariance, scale**2 * noise)


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a figure with mean 0 and variance 1 over configurations."""

    lengths: Array
    """(coordinates,), in edges of the unit cube."""
    signal: float
    effect: float
    """The variance of a configuration's own effect."""
    noise_there: float
    """The noise's variance where `length` is 0."""
    slope: float

    def noise(self, length: Array) -> Array:
        """The variance of one run, by the length of the training."""
        found: Array = self.noise_there * np.exp(-self.slope * length)
        return found

    def smooth(self, a: Array, b: Array) -> Array:
        """The covariance (Matérn 5/2) of what is smooth between `a` and `b`, (rows, coordinates)
        each: (rows of a, rows of b).
        """
        return matern(a / self.lengths, b / self.lengths, self.signal)


def _some_of(data: Repeated) -> Repeated:
    """At most `GP_ROWS` configurations: those that ran most often, and of the others every so
    many.
    """
    n = len(data.mean)
    if n <= GP_ROWS:
        return data
    most_first = np.argsort(-data.runs, kind="stable")
    often = most_first[: min(GP_ROWS // 2, int((data.runs > 1).sum()))]
    others = np.setdiff1d(np.arange(n), often)
    spread = others[np.linspace(0, len(others) - 1, GP_ROWS - len(often)).round().astype(int)]
    return some_of(data, np.sort(np.concatenate([often, spread])))


def probable_settings(data: Repeated, iterations: int) -> Settings:
    """The most probable settings under their priors, from one fixed start.

    `data` has a mean of about 0 and a variance of about 1 over configurations.
    """
    d = data.where.shape[1]
    centre = np.array(
        [LENGTH_PRIOR[0]] * d + [0.0, EFFECT_PRIOR[0], NOISE_PRIOR[0], SLOPE_PRIOR[0]]
    )
    theta = most_probable(
        Likelihood(data).at,
        centre=centre,
        spread=np.array(
            [LENGTH_PRIOR[1]] * d + [1.0, EFFECT_PRIOR[1], NOISE_PRIOR[1], SLOPE_PRIOR[1]]
        ),
        start=np.concatenate([[START_LENGTH] * d, centre[d:]]),
        bounds=[(-4.0, 4.0)] * (d + 1) + [(-9.0, 2.0)] * 2 + [(0.0, 4.0)],
        iterations=iterations,
    )
    signal, effect, noise = (math.exp(part) for part in theta[d : d + 3])
    return Settings(np.exp(theta[:d]), signal, effect + JITTER, noise, float(theta[d + 3]))


class Likelihood:
    """Of the means of configurations, and of how their runs differ from these."""

    def __init__(self, data: Repeated) -> None:
        self._data = data
        self._distances = Distances(data.where)

    def at(self, theta: Array) -> tuple[float, Array]:
        """Its negative logarithm for settings (lengths, signal, effect, noise, slope), and the
        gradient.
        """
        data, d = self._data, self._data.where.shape[1]
        effect, noise_there = math.exp(theta[d + 1]), math.exp(theta[d + 2])
        noise = noise_there * np.exp(-theta[d + 3] * data.length)
        of_means = noise / data.runs
        smooth = self._distances.covariance(theta)
        covariance = smooth.kernel.copy()
        covariance[np.diag_indices_from(covariance)] += effect + of_means + JITTER
        of_the_means, inner = unlikely(data.mean, covariance)
        diagonal = np.diag(inner)
        # The runs of one configuration about their mean: as many degrees of freedom as runs but
        # one.
        free = data.runs - 1
        excess = 0.5 * (free - data.squares / noise) - 0.5 * diagonal * of_means
        gradient = np.array(
            [
                *smooth.gradient(inner),
                -0.5 * effect * float(diagonal.sum()),
                float(excess.sum()),
                -float((excess * data.length).sum()),
            ]
        )
        of_their_runs = 0.5 * float((free * np.log(noise) + data.squares / noise).sum())
        return of_the_means + of_their_runs, gradient


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
        from scipy.linalg import cho_solve  # here: who only watches does not wait for it

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
        from scipy.linalg import solve_triangular

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


def another_figure(ran: Configurations, row: Array, values: Array) -> Figure:
    """What is believed of a figure beside the two: of its `values`, (runs,), each of the
    configuration whose `row` is given.
    """
    mean = np.bincount(row, values) / ran.runs
    squares = np.bincount(row, (values - mean[row]) ** 2)
    of_it = replace(ran, mean=mean[:, None], squares=squares[:, None])
    some, most = (of_it.taken(promising(ran, count)) for count in (FIT_ROWS, ROWS))
    return Figure(most, 0, _fitted(of_it, some, 0))


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


# What a confirmation will ask of a configuration, by the noise that its runs are believed to
# have.


def asked_of(noise: Array, of_default: float, seeds: int, level: float) -> tuple[Array, Array]:
    """The variance of the difference from the default that a confirmation on all of so many seeds
    will see, and by how much that has to lie below the margin for it to be claimed at this level;
    both like `noise`, the variance of one run of each configuration.
    """
    from scipy.special import stdtrit  # here: who only watches a launch does not wait for it

    error = (noise + of_default) / seeds
    return error, float(stdtrit(seeds - 1, 1 - level)) * np.sqrt(error)
