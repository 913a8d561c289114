"""A Gaussian process for few, noisy trials: one figure as a function of the unit cube, in some
hundredths of a second.

Matérn 5/2 with a length for each coordinate, and white noise; the most probable of its settings
under priors that expect short lengths: with lengths about 1, the noise explained what differs.

Sources: Rasmussen and Williams (2006), chapters 2 and 5.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


Array = np.ndarray[Any, Any]

LENGTH_PRIOR = (-1.0, 0.5)
"""Mean and standard deviation of a length's logarithm, in units of the cube's edge."""
NOISE_PRIOR = (math.log(0.05), 1.5)
"""Of the logarithm of the noise's variance, in units of the figure's."""
FIT_ROWS = 120
"""Settings are fitted to so many rows at most, the latest;
all rows count for what is predicted then."""

START_LENGTH = math.log(0.5)
"""The logarithm that the search for the most probable lengths begins with."""
JITTER = 1e-6
"""Added to variances, in units of the figure's: a matrix of places that are the same can be
decomposed."""

_ITERATIONS = 40
_LEAST_VARIANCE = 1e-9
_ROUNDING = 1e-12
_ROOT5 = math.sqrt(5.0)


def centre_and_scale(figures: Array) -> tuple[float, float]:
    """Their mean and standard deviation; 1 in place of one that is nothing but rounding."""
    scale = float(figures.std())
    rounding = _ROUNDING * float(np.abs(figures).max(initial=0.0))
    return float(figures.mean()), scale if scale > rounding else 1.0


class GaussianProcess:
    """Fitted to `x`, (rows, coordinates) of the unit cube, and `y`, (rows,); deterministic."""

    def __init__(self, x: Array, y: Array) -> None:
        from scipy.linalg import cho_solve

        self._mean, self._scale = centre_and_scale(y)
        self._x, self._z = x, (y - self._mean) / self._scale
        lengths, self._signal, self._noise = _settings(x[-FIT_ROWS:], self._z[-FIT_ROWS:])
        self._shrink = 1 / lengths
        covariance = self._kernel(x, x) + self._noise * np.eye(len(x))
        self._lower = np.linalg.cholesky(covariance)
        self._weights = cho_solve((self._lower, True), self._z)

    def left_out(self) -> Array:
        """What is expected at each row by all the others, (rows,): its own noise is not in it."""
        from scipy.linalg import cho_solve

        inverse = cho_solve((self._lower, True), np.eye(len(self._z)))
        expected: Array = self._mean + self._scale * (self._z - self._weights / np.diag(inverse))
        return expected

    def posterior(self, x: Array) -> tuple[Array, Array]:
        """What is expected at `x`, and its standard deviation, (rows,) each, without noise."""
        from scipy.linalg import solve_triangular

        kernel = self._kernel(x, self._x)
        explained = (solve_triangular(self._lower, kernel.T, lower=True) ** 2).sum(axis=0)
        variance = np.maximum(self._signal - explained, _LEAST_VARIANCE)
        return self._mean + self._scale * (kernel @ self._weights), self._scale * np.sqrt(variance)

    def _kernel(self, a: Array, b: Array) -> Array:
        return matern(a * self._shrink, b * self._shrink, self._signal)


def matern(a: Array, b: Array, signal: float) -> Array:
    """The Matérn 5/2 covariance between `a` and `b`, (rows, coordinates) each and in units of the
    lengths: (rows of a, rows of b).
    """
    squares = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
    r = _ROOT5 * np.sqrt(squares)
    kernel: Array = signal * (1 + r + r * r / 3) * np.exp(-r)
    return kernel


@dataclass(frozen=True, slots=True)
class Covariance:
    """Between the rows of one array, and what its gradient follows from."""

    kernel: Array
    """(rows, rows)."""
    _fading: Array
    _r: Array
    _parts: Array
    """What each coordinate adds to the squared distances, in units of the lengths."""

    def gradient(self, inner: Array) -> list[float]:
        """Of a density with this `inner` (`unlikely`), by the logarithms of the lengths and of the
        signal.
        """
        slope = inner * self._fading * (1 + self._r) * 5 / 3
        of_lengths = [-0.5 * float((slope * part).sum()) for part in self._parts]
        return [*of_lengths, -0.5 * float((inner * self.kernel).sum())]


class Distances:
    """Between the rows of `x`, (rows, coordinates), once for all lengths that are tried."""

    def __init__(self, x: Array) -> None:
        self._squares = np.moveaxis((x[:, None, :] - x[None, :, :]) ** 2, 2, 0)

    def covariance(self, theta: Array) -> Covariance:
        """Matérn 5/2, by the logarithms of the lengths and then of the signal's variance; what else
        stands in `theta` is not read.
        """
        d = len(self._squares)
        parts = self._squares * np.exp(-2 * theta[:d])[:, None, None]
        r = _ROOT5 * np.sqrt(parts.sum(axis=0))
        fading = math.exp(theta[d]) * np.exp(-r)
        return Covariance(fading * (1 + r + r * r / 3), fading, r, parts)


def unlikely(z: Array, covariance: Array) -> tuple[float, Array]:
    """The negative logarithm of the normal density of `z`, (rows,), with the mean 0, but for a
    constant; and `inner`, (rows, rows): times a derivative of the covariance, summed and halved, it
    is a derivative of the logarithm.
    """
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(covariance, lower=True)
    inverse = cho_solve(factor, np.eye(len(z)))
    weights = inverse @ z
    value = 0.5 * float(z @ weights) + float(np.log(np.diag(factor[0])).sum())
    return value, np.outer(weights, weights) - inverse


def most_probable(
    likelihood: Callable[[Array], tuple[float, Array]],
    *,
    centre: Array,
    spread: Array,
    start: Array,
    bounds: Sequence[tuple[float, float]],
    iterations: int,
) -> Array:
    """The most probable settings, (settings,), by L-BFGS from `start`, in so many steps at most.

    `likelihood` gives the negative logarithm of a likelihood, and its gradient; the priors are
    normal, with the means `centre` and the standard deviations `spread`.
    """
    from scipy.optimize import minimize

    def posterior(theta: Array) -> tuple[float, Array]:
        value, gradient = likelihood(theta)
        off = (theta - centre) / spread
        return value + 0.5 * float(off @ off), gradient + off / spread

    found: Array = minimize(
        posterior,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": iterations},
    ).x
    return found


def _settings(x: Array, z: Array) -> tuple[Array, float, float]:
    """The most probable lengths, the signal's variance and the noise's."""
    n, d = x.shape
    distances = Distances(x)
    eye = np.eye(n)

    def likelihood(theta: Array) -> tuple[float, Array]:
        noise = math.exp(theta[d + 1])
        covariance = distances.covariance(theta)
        value, inner = unlikely(z, covariance.kernel + (noise + JITTER) * eye)
        of_noise = -0.5 * noise * float(np.trace(inner))
        return value, np.array([*covariance.gradient(inner), of_noise])

    theta = most_probable(
        likelihood,
        centre=np.array([LENGTH_PRIOR[0]] * d + [0.0, NOISE_PRIOR[0]]),
        spread=np.array([LENGTH_PRIOR[1]] * d + [1.0, NOISE_PRIOR[1]]),
        start=np.array([START_LENGTH] * d + [0.0, NOISE_PRIOR[0]]),
        bounds=[(-4.0, 4.0)] * (d + 1) + [(-9.0, 2.0)],
        iterations=_ITERATIONS,
    )
    return np.exp(theta[:d]), math.exp(theta[d]), math.exp(theta[d + 1]) + JITTER


# Linear algebra in one thread.


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """In here, or in a function that it decorates, NumPy and SciPy use one thread of this process;
    torch keeps its own.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those with threads that this process has loaded by now, the first time that somebody asks.
    To look for them takes milliseconds: in a process with torch, Ray and others as long as to
    suggest a trial.
    """
    # Here: not everybody who names a model asks it. SciPy has threads of its own to be limited.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
