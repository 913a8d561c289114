"""Smooth and rough surfaces through noisy points: none is of the kind that the searcher's own model
assumes (Matérn 5/2).

`forest`  extremely randomised trees: steps, and no value beyond those seen.
`draw`    one draw from what a Gaussian process with another kernel believes after the points: as
          rough as that kernel says where there are no points (Wilson et al., "Efficiently Sampling
          Functions from Gaussian Process Posteriors", 2020: a draw of the prior by random Fourier
          features, moved by what the points say).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

Array = np.ndarray[Any, Any]
Surface = Callable[[Array], Array]
"""From places, (rows, coordinates) of the unit cube, to values, (rows,)."""

TREES = 100
FEATURES = 2000
LEAF = 2
FIT_ROWS = 250
"""Lengths of a kernel are fitted to so many points."""
SMOOTHNESS = {"exponential": 0.5, "matern32": 1.5, "gaussian": None}
"""Of a kernel, as the degree of a Matérn one; the Gaussian kernel has none."""


def forest(x: Array, y: Array, *, seed: int, leaf: int = LEAF) -> Surface:
    """The mean of randomised trees, in one pass over their flattened leaves, each of `leaf` points
    at least.
    """
    fitted = ExtraTreesRegressor(TREES, min_samples_leaf=leaf, random_state=seed).fit(x, y)

    def at(places: Array) -> Array:
        rows = np.asarray(places, dtype=np.float32)
        found: Array = np.mean(
            [tree.tree_.predict(rows)[:, 0] for tree in fitted.estimators_], axis=0
        )
        return found

    return at


def draw(x: Array, y: Array, *, kernel: str, shrink: float, seed: int) -> Surface:
    """A draw given the points, with the lengths that suit them best times `shrink`."""
    random = np.random.default_rng(seed)
    centre, scale = float(y.mean()), float(y.std())
    z = (y - centre) / scale
    lengths, signal, noise = _fitted(x, z, kernel, random)
    lengths = lengths * shrink
    nu = SMOOTHNESS[kernel]
    frequencies = random.standard_normal((FEATURES, x.shape[1]))
    if nu is not None:
        # A Matérn kernel's frequencies have Student's distribution with twice its degree.
        frequencies /= np.sqrt(random.chisquare(2 * nu, (FEATURES, 1)) / (2 * nu))
    frequencies /= lengths
    phases = random.uniform(0, 2 * np.pi, FEATURES)
    weights = random.standard_normal(FEATURES) * np.sqrt(2 * signal / FEATURES)

    def prior(places: Array) -> Array:
        found: Array = np.cos(places @ frequencies.T + phases) @ weights
        return found

    covariance = _kernel(x, x, kernel, lengths, signal) + noise * np.eye(len(x))
    seen = prior(x) + np.sqrt(noise) * random.standard_normal(len(x))
    correction = np.linalg.solve(covariance, z - seen)

    def at(places: Array) -> Array:
        moved = prior(places) + _kernel(places, x, kernel, lengths, signal) @ correction
        found: Array = centre + scale * moved
        return found

    return at


def _fitted(
    x: Array, z: Array, kernel: str, random: np.random.Generator
) -> tuple[Array, float, float]:
    """Lengths, the signal's variance and the noise's, the most probable ones for some of the points."""
    rows = random.permutation(len(x))[:FIT_ROWS]
    nu = SMOOTHNESS[kernel]
    lengths, bounds = np.full(x.shape[1], 0.5), (0.1, 10.0)
    shape = (
        RBF(lengths, length_scale_bounds=bounds)
        if nu is None
        else Matern(lengths, length_scale_bounds=bounds, nu=nu)
    )
    model = GaussianProcessRegressor(
        ConstantKernel(1.0, (0.1, 10.0)) * shape + WhiteKernel(0.2, (1e-3, 1.0)), random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.fit(x[rows], z[rows]).kernel_
    return (
        np.asarray(fitted.k1.k2.length_scale, dtype=float),
        float(fitted.k1.k1.constant_value),
        float(fitted.k2.noise_level),
    )


def _kernel(a: Array, b: Array, kernel: str, lengths: Array, signal: float) -> Array:
    a, b = a / lengths, b / lengths
    squares = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
    r = np.sqrt(squares)
    if kernel == "gaussian":
        fading = np.exp(-0.5 * squares)
    elif kernel == "exponential":
        fading = np.exp(-r)
    else:
        fading = (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)
    found: Array = signal * fading
    return found
