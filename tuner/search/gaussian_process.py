"""What a Gaussian process for few, noisy trials is made of: one figure as a function of the unit
cube.

Matérn 5/2 with a length for each coordinate, and noise; the most probable of its settings under
priors that expect short lengths: with lengths about 1, the noise explained what differs.

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
START_LENGTH = math.log(0.5)
"""The logarithm that the search for the most probable lengths begins with."""
JITTER = 1e-6
"""Added to variances, in units of the figure's: a matrix of places that are the same can be
decomposed."""

_ROUNDING = 1e-12
_ROOT5 = math.sqrt(5.0)


def centre_and_scale(figures: Array) -> tuple[float, float]:
    """Their mean and standard deviation; 1 in place of one that is nothing but rounding."""
    scale = float(figures.std())
    rounding = _ROUNDING * float(np.abs(figures).max(initial=0.0))
    return float(figures.mean()), scale if scale > rounding else 1.0


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
