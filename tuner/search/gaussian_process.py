"""A Gaussian process for few, noisy trials: one figure as a function of the unit cube, in some
hundredths of a second.

Matérn 5/2 with a length for each coordinate, and white noise; the most probable of its settings
under priors that expect short lengths: with lengths about 1, the noise explained what differs
(docs/log.md).

Sources: Rasmussen and Williams (2006), chapters 2 and 5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LENGTH_PRIOR = (-1.0, 0.5)
"""Mean and standard deviation of a length's logarithm, in units of the cube's edge."""
NOISE_PRIOR = (math.log(0.05), 1.5)
"""Of the logarithm of the noise's variance, in units of the figure's."""
FIT_ROWS = 120
"""Settings are fitted to so many rows at most, the latest;
all rows count for what is predicted then."""

_START_LENGTH = math.log(0.5)
_ITERATIONS = 40
_JITTER = 1e-6
_LEAST_VARIANCE = 1e-9
_ROOT5 = math.sqrt(5.0)


class GaussianProcess:
    """Fitted to `x`, (rows, coordinates) of the unit cube, and `y`, (rows,); deterministic."""

    def __init__(self, x: Array, y: Array) -> None:
        self._mean, self._scale = float(y.mean()), float(y.std()) or 1.0
        self._x, self._z = x, (y - self._mean) / self._scale
        lengths, self._signal, self._noise = _settings(x[-FIT_ROWS:], self._z[-FIT_ROWS:])
        self._shrink = 1 / lengths
        self._condition()

    def believe(self, x: Array) -> None:
        """Take for `x`, (rows, coordinates), what is expected there:
        of trials that are still running.
        """
        self._z = np.append(self._z, (self.mean(x) - self._mean) / self._scale)
        self._x = np.vstack([self._x, x])
        self._condition()

    def mean(self, x: Array) -> Array:
        """What is expected at `x`, (rows,), without noise."""
        expected: Array = self._mean + self._scale * (self._kernel(x, self._x) @ self._weights)
        return expected

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

    def _condition(self) -> None:
        from scipy.linalg import cho_solve

        covariance = self._kernel(self._x, self._x) + self._noise * np.eye(len(self._x))
        self._lower = np.linalg.cholesky(covariance)
        self._weights = cho_solve((self._lower, True), self._z)

    def _kernel(self, a: Array, b: Array) -> Array:
        a, b = a * self._shrink, b * self._shrink
        squares = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
        r = _ROOT5 * np.sqrt(squares)
        kernel: Array = self._signal * (1 + r + r * r / 3) * np.exp(-r)
        return kernel


def _settings(x: Array, z: Array) -> tuple[Array, float, float]:
    """Lengths, the signal's variance and the noise's:
    the most probable ones, by L-BFGS from one fixed start.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    n, d = x.shape
    apart = np.moveaxis((x[:, None, :] - x[None, :, :]) ** 2, 2, 0)
    centre = np.array([LENGTH_PRIOR[0]] * d + [0.0, NOISE_PRIOR[0]])
    spread = np.array([LENGTH_PRIOR[1]] * d + [1.0, NOISE_PRIOR[1]])
    eye = np.eye(n)

    def unlikely(theta: Array) -> tuple[float, Array]:
        """Negative logarithm of the posterior density, and its gradient."""
        signal, noise = math.exp(theta[d]), math.exp(theta[d + 1])
        parts = apart * np.exp(-2 * theta[:d])[:, None, None]
        r = _ROOT5 * np.sqrt(parts.sum(axis=0))
        decay = signal * np.exp(-r)
        kernel = decay * (1 + r + r * r / 3)
        factor = cho_factor(kernel + (noise + _JITTER) * eye, lower=True)
        inverse = cho_solve(factor, eye)
        weights = inverse @ z
        inner = np.outer(weights, weights) - inverse
        slope = inner * decay * (1 + r) * 5 / 3
        of_lengths = [-0.5 * float((slope * part).sum()) for part in parts]
        gradient = np.array(
            [
                *of_lengths,
                -0.5 * float((inner * kernel).sum()),
                -0.5 * noise * float(np.trace(inner)),
            ]
        )
        off = (theta - centre) / spread
        value = (
            0.5 * float(z @ weights)
            + float(np.log(np.diag(factor[0])).sum())
            + 0.5 * float(off @ off)
        )
        return value, gradient + off / spread

    start = np.array([_START_LENGTH] * d + [0.0, NOISE_PRIOR[0]])
    bounds = [(-4.0, 4.0)] * (d + 1) + [(-9.0, 2.0)]
    theta = minimize(
        unlikely,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": _ITERATIONS},
    ).x
    return np.exp(theta[:d]), math.exp(theta[d]), math.exp(theta[d + 1]) + _JITTER
