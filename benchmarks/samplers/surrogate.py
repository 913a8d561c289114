"""A job made of a table: a named model of its figures on the encoded space, and the job's own noise by its residuals.

`forest`: extremely randomised trees (scikit-learn), the default. They assume nothing of the samplers' own models.
`gp`: a Gaussian process with a Matérn 5/2 kernel and white noise. Smoother, but of the kind that `gp` samplers use
themselves, which favours them: to see whether a ranking depends on the surrogate, not to rank by.

Modelled are the logarithm of the epochs, the logarithm of the seconds per epoch, and the MQL, of all trials that have
them, and the probability that a trial diverges. A trial's noise is a residual of the model drawn at random: those of
left-out trials, epochs and MQL together, scaled down to the spread between seeds where the table holds configurations
with several seeds, since a residual is the model's error, too.

Limits. Between the table's points the job is what the model says: a forest has steps and cannot go beyond the best value
it has seen, so the true front is better than its; a narrow optimum that no trial met does not exist. Differences between
samplers smaller than the model's error mean nothing. Seconds per epoch are those of the table's device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks.samplers.job import Outcome, Params
from benchmarks.samplers.table import HYPERPARAMETERS, Table

TREES = 100
FOLDS = 10
ENOUGH_REPEATS = 5
"""Pairs of runs of one configuration with different seeds from which the spread between seeds is taken."""
KINDS = ("forest", "gp")


class SurrogateJob:
    """Trials of a table's job without the training."""

    def __init__(self, table: Table, *, kind: str = "forest") -> None:
        self.name = f"{table.name} ({kind})"
        self.space = table.space
        self.default = table.default
        self._limit = float(table.origin["max_epochs"])
        shares = np.array([self._shares(row) for row in table.rows])
        known = np.array(
            [row["test_mql"] is not None and row["stopped_by"] != "diverged" for row in table.rows]
        )
        figures = np.array(
            [_figures(row) for row, has in zip(table.rows, known, strict=True) if has]
        )
        self._models = [_regressor(kind).fit(shares[known], column) for column in figures.T]
        self._diverges = ExtraTreesClassifier(TREES, min_samples_leaf=3, random_state=0).fit(
            shares, ~known
        )
        self._some_diverge = not known.all()
        folds = KFold(FOLDS, shuffle=True, random_state=0)
        left_out = np.column_stack(
            [
                cross_val_predict(_regressor(kind), shares[known], column, cv=folds)
                for column in figures.T
            ]
        )
        self.error = np.sqrt(np.mean((figures - left_out) ** 2, axis=0))
        self.explained = 1 - np.var(figures - left_out, axis=0) / np.var(figures, axis=0)
        self._residuals = _noise(figures, left_out, shares[known])

    def run(self, params: Params, random: np.random.Generator) -> Outcome:
        if self._some_diverge and random.uniform() < self._divergence(params):
            return Outcome(None)
        drawn = self._residuals[random.integers(len(self._residuals))]
        return self._outcome(self._predict(params) + drawn)

    def truth(self, params: Params) -> Outcome:
        if self._some_diverge and self._divergence(params) > 0.5:
            return Outcome(None)
        return self._outcome(self._predict(params))

    def _outcome(self, figures: np.ndarray) -> Outcome:
        epochs = math.exp(figures[0])
        shown = min(max(round(epochs), 1), self._limit)
        return Outcome(
            (shown * math.exp(figures[1]), float(figures[2])), converged=epochs < self._limit - 0.5
        )

    def _predict(self, params: Params) -> np.ndarray:
        here = np.array([self._shares(params)], dtype=np.float32)
        return np.array([_at_one_point(model, here) for model in self._models])

    def _divergence(self, params: Params) -> float:
        return _at_one_point(self._diverges, np.array([self._shares(params)], dtype=np.float32))

    def _shares(self, params: Params) -> list[float]:
        return self.space.shares({name: params[name] for name in HYPERPARAMETERS})


def _at_one_point(model: Any, here: np.ndarray) -> float:
    """What `model.predict` gives (of a classifier: the probability of True), without its toll of 30 ms a call."""
    if isinstance(model, GaussianProcessRegressor):
        return float(model.predict(here)[0])
    return float(np.mean([tree.tree_.predict(here)[0, -1] for tree in model.estimators_]))


def _figures(row: dict[str, Any]) -> tuple[float, float, float]:
    return math.log(row["epochs"]), math.log(row["wall_clock_s"] / row["epochs"]), row["test_mql"]


def _regressor(kind: str) -> Any:
    if kind == "forest":
        return ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=0)
    kernel = ConstantKernel() * Matern(np.ones(len(HYPERPARAMETERS)), nu=2.5) + WhiteKernel(0.1)
    return GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
    )


def _noise(figures: np.ndarray, left_out: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Residuals to draw from, (trials, figures): of left-out trials, scaled to the spread between seeds if known."""
    residuals = figures - left_out
    residuals -= residuals.mean(axis=0)
    _, group = np.unique(shares.round(9), axis=0, return_inverse=True)
    repeated = [figures[group == g] for g in set(group.tolist()) if (group == g).sum() > 1]
    degrees = sum(len(runs) - 1 for runs in repeated)
    if degrees < ENOUGH_REPEATS:
        return residuals
    between_seeds = np.sqrt(
        sum(((runs - runs.mean(axis=0)) ** 2).sum(axis=0) for runs in repeated) / degrees
    )
    return residuals * np.minimum(1.0, between_seeds / np.maximum(residuals.std(axis=0), 1e-12))
