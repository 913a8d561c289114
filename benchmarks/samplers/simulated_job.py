"""A simulated job with the reference job's known shape, for as long as there is no table of real trials.

What it imitates, and from where: the default takes 48 epochs of 0.076 s and gives an MQL of 0.805, a doubled batch takes
about a third more epochs (benchmarks/README.md, the team's notes); a seed moves MQL by 0.008 and the epochs by a tenth
(standard deviations). What it makes up: that a higher rate shortens training until it spoils the forecast, where the
best dropout, weight decay and width lie, and that the optimum of the rate moves with the batch and the width. It shows
whether a sampler copes with such a job; it is no measurement of one.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.samplers.job import Outcome, Params
from tuner.spec.study_file import load_study_file

STEPS = 20_522
MAX_EPOCHS = 200
PATIENCE = 10
MQL_SD = 0.008
EPOCHS_SD = 0.10


class SimulatedJob:
    """Closed formulas of the five hyperparameters."""

    name = "simulated"

    def __init__(self) -> None:
        file = load_study_file("original")
        self.space = file.space
        self.default = dict(file.default_hyperparameters().as_dict())

    def run(self, params: Params, random: np.random.Generator) -> Outcome:
        if random.uniform() < _divergence(params):
            return Outcome(None)
        epochs = PATIENCE + (_epochs(params) - PATIENCE) * math.exp(random.normal(0, EPOCHS_SD))
        mql = _mql(params) + random.normal(0, MQL_SD)
        return _outcome(params, epochs, mql)

    def truth(self, params: Params) -> Outcome:
        return (
            Outcome(None)
            if _divergence(params) > 0.5
            else _outcome(params, _epochs(params), _mql(params))
        )


def _outcome(params: Params, epochs: float, mql: float) -> Outcome:
    shown = min(round(epochs), MAX_EPOCHS)
    return Outcome((shown * _s_per_epoch(params), mql), converged=epochs < MAX_EPOCHS)


def _heat(params: Params) -> float:
    """The learning rate a sample feels, relative to the default's: what both speed and stability hang on."""
    return float(params["learning_rate"] / 1e-4 * (256 / params["batch_size"]) ** 0.9)


def _s_per_epoch(params: Params) -> float:
    """Small batches are bound by launches, large wide ones by arithmetic."""
    batch, hidden = params["batch_size"] / 256, params["hidden_size"] / 64
    return STEPS / params["batch_size"] * 0.00095 * (0.8 + 0.2 * batch * hidden**1.4)


def _epochs(params: Params) -> float:
    hidden, dropout = params["hidden_size"] / 64, params["dropout"]
    heat = _heat(params) * hidden**0.3
    learning = 38.0 * heat**-0.62 * (1 + 1.2 * max(0.0, dropout - 0.1))
    unrest = 4.0 * math.log10(max(heat / 20, 1.0)) ** 2
    return PATIENCE + max(learning, 3.0) + unrest


def _mql(params: Params) -> float:
    hidden, dropout, decay = params["hidden_size"] / 64, params["dropout"], params["weight_decay"]
    heat = math.log10(_heat(params) * hidden**0.5)
    rate = 0.018 * max(0.0, heat - 0.6) ** 2 + 0.012 * max(0.0, -heat) ** 2
    width = 0.004 * (math.log2(hidden) - 1.0) ** 2
    shed = 0.14 * (dropout - 0.12 - 0.05 * math.log2(hidden)) ** 2
    shrink = -0.006 * math.exp(-((math.log10(max(decay, 1e-9)) + 3.5) ** 2)) + 6.0 * max(
        0.0, decay - 0.02
    )
    noise_scale = 0.004 * max(0.0, math.log2(params["batch_size"] / 256)) * max(0.0, heat)
    return 0.7995 + rate + width + shed + shrink + noise_scale


def _divergence(params: Params) -> float:
    """The probability that a training runs away."""
    return 1 / (1 + math.exp(-(math.log10(_heat(params)) - 2.6) / 0.12))
