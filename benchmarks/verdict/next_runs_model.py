"""The model of all runs that a decision on the next one asks: of new places, too, and going on from
the settings that it had.

The figure of a configuration is a smooth function of where it lies, and an effect of its own, as in
`tuner.verdict.repeated_runs`. The default's own effect is free: people chose it, so its neighbours
are worse than it.

Sources: Rasmussen and Williams (2006), chapter 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from tuner.search.gaussian_process import LENGTH_PRIOR, NOISE_PRIOR
from tuner.verdict.repeated_runs import EFFECT_PRIOR, SLOPE_PRIOR, Repeated, _Likelihood

Array = np.ndarray[Any, Any]

_ROOT5 = math.sqrt(5.0)


def _matern(a: Array, b: Array, lengths: Array, signal: float) -> Array:
    a, b = a / lengths, b / lengths
    squares = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
    r = _ROOT5 * np.sqrt(squares)
    found: Array = signal * (1 + r + r * r / 3) * np.exp(-r)
    return found


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
        found: Array = np.maximum(self.variance + self.of_default - 2 * self.with_default, 1e-12)
        return found

    def explained(self, noise: Array) -> Array:
        """How much of that variance a figure with this noise would explain."""
        moved = (self.variance - self.with_default) ** 2 / (self.variance + noise)
        found: Array = np.minimum(moved, 0.9999 * self.apart)
        return found


class Figure:
    """The logarithm of time or MQL; settings go on from where they were."""

    def __init__(self, dimensions: int) -> None:
        d = self._d = dimensions
        priors = (LENGTH_PRIOR,) * d + ((0.0, 1.0), EFFECT_PRIOR, NOISE_PRIOR, SLOPE_PRIOR)
        self._centre, self._spread = np.array(priors).T
        self._theta = self._centre.copy()
        self._theta[:d] = math.log(0.5)

    def fit(self, data: Repeated, rows: Array, default: int, own: float, iterations: int) -> None:
        """Take the runs in; the settings are fitted to `rows` again where there are iterations."""
        self._centre_of, self._scale = float(data.mean.mean()), float(data.mean.std()) or 1.0
        z = (data.mean - self._centre_of) / self._scale
        if iterations:
            some = Repeated(
                where=data.where[rows],
                mean=z[rows],
                runs=data.runs[rows],
                squares=data.squares[rows] / self._scale**2,
                length=data.length[rows],
            )
            self._fit(_Likelihood(some), iterations)
        d = self._d
        self._lengths = np.exp(self._theta[:d])
        self._signal, effect, self._noise = (math.exp(x) for x in self._theta[d : d + 3])
        self._effect = effect + 1e-6
        self._effects = np.full(len(z), self._effect)
        self._effects[default] = max(self._effect, own)
        self._where, self._row = data.where, default
        kernel = _matern(data.where, data.where, self._lengths, self._signal)
        kernel[np.diag_indices_from(kernel)] += (
            self._effects + self._of_run(data.length) / data.runs
        )
        self._lower = np.linalg.cholesky(kernel)
        self._weights = cho_solve((self._lower, True), z)

    def noise(self, length: Array) -> Array:
        """The variance of one run."""
        found: Array = self._scale**2 * self._of_run(length)
        return found

    def of(self, tried: Array, new: Array) -> Of:
        """Of configurations that ran, by their rows, and of new places after them."""
        x = np.vstack([self._where[tried], new])
        n, row = len(tried), self._row
        cross = _matern(x, self._where, self._lengths, self._signal)
        cross[np.arange(n), tried] += self._effects[tried]
        effects = np.full(len(x), self._effect)
        effects[:n] = self._effects[tried]
        half = solve_triangular(self._lower, cross.T, lower=True)
        own = _matern(self._where[[row]], self._where, self._lengths, self._signal)
        own[0, row] += self._effects[row]
        of_own = solve_triangular(self._lower, own.T, lower=True)[:, 0]
        shared = _matern(x, self._where[[row]], self._lengths, self._signal)[:, 0]
        shared[:n][tried == row] += self._effects[row]
        scale = self._scale**2
        left = float(self._signal + self._effects[row] - of_own @ of_own)
        return Of(
            self._centre_of + self._scale * (cross @ self._weights),
            scale * np.maximum(self._signal + effects - (half * half).sum(axis=0), 1e-12),
            scale * (shared - half.T @ of_own),
            self._centre_of + self._scale * float((own @ self._weights)[0]),
            scale * max(left, 1e-12),
        )

    def _of_run(self, length: Array) -> Array:
        found: Array = self._noise * np.exp(-self._theta[-1] * length)
        return found

    def _fit(self, likelihood: _Likelihood, iterations: int) -> None:
        def unlikely(theta: Array) -> tuple[float, Array]:
            value, gradient = likelihood.at(theta)
            off = (theta - self._centre) / self._spread
            return value + 0.5 * float(off @ off), gradient + off / self._spread

        bounds = [(-4.0, 4.0)] * (self._d + 1) + [(-9.0, 2.0)] * 2 + [(0.0, 4.0)]
        options = {"maxiter": iterations}
        self._theta = minimize(
            unlikely, self._theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x
