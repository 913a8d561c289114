"""Jobs whose truth is known: surfaces through what was recorded of real trainings, with the noise
that was measured between seeds.

Of twelve truths eight are for tuning a method and four for reporting what it does. Of the eight four
were reported once, and constants were decided after that. None is a relative of the model that
searches and recommends; each differs from the others in its surface, in the recordings that it goes
through, or in both. The default configuration is where the record has it: it sits in a dip of its
own of the surface, as deep as the record says.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verdict.recordings import Recordings, recordings
from benchmarks.verdict.surfaces import LEAF, Surface, draw, forest
from tuner.spec.space import SearchSpace

Array = np.ndarray[Any, Any]

NOISE_LOG_EPOCHS = 0.12
LEAST_EPOCHS, MOST_EPOCHS = 11, 200
"""Patience and one more; the limit of the reference job."""
FENCE = 1.25
"""Times the default's MQL: surfaces go through points no farther up than that."""
DIP = 0.1
"""How wide the default's own dip is, in edges of the unit cube."""
SOFT = 0.004
"""How softly a surface ends at the lowest MQL that is credible."""


@dataclass(frozen=True, slots=True)
class SeedNoise:
    """What a seed does to the MQL, by the epochs of a training; between them by the logarithm,
    beyond them as at the ends.
    """

    epochs: tuple[float, ...]
    sd: tuple[float, ...]
    """Of the MQL over seeds."""
    skew: tuple[float, float]
    """At the shortest of these trainings and at the longest."""


NOISE = SeedNoise((14.0, 20.0, 30.0), (0.014, 0.011, 0.006), (1.0, 1e-3))
"""As ten seeds of 29 configurations had it (benchmarks/campaign)."""
NOISE_OF_RETUNES = SeedNoise(
    (17.3, 19.0, 21.0, 23.5, 30.5, 50.6),
    (0.0094, 0.0087, 0.0082, 0.0081, 0.0075, 0.0061),
    (0.5, 0.25),
)
"""As 90 or 30 seeds of more than a hundred configurations had it (seed_noise.py), which were tested
or are the default."""
RETUNED_LEAF = 8


@dataclass(frozen=True, slots=True)
class Made:
    """How a truth is made."""

    name: str
    variant: str
    surface: str
    seed: int
    report: bool
    """Whether it is for reporting; the others are for tuning."""
    shrink: float = 1.0
    retuned: bool = False
    """Made of the searches of its retune, where promising configurations ran many times: what is a
    seed's luck there, and what the surface, is known better."""


TRUTHS = (
    Made("forest, original", "original", "forest", 1, report=False),
    Made("exponential draw, original", "original", "exponential", 2, report=False),
    Made("Gaussian draw, rmsnorm", "rmsnorm", "gaussian", 3, report=False),
    Made("forest, simple", "simple", "forest", 4, report=False),
    Made("forest, rmsnorm", "rmsnorm", "forest", 5, report=False),
    Made("Matérn 3/2 draw, short, original", "original", "matern32", 6, report=False, shrink=0.5),
    Made("exponential draw, batchnorm", "batchnorm", "exponential", 7, report=False),
    Made("Gaussian draw, simple", "simple", "gaussian", 8, report=False),
    Made("forest, layernorm", "layernorm", "forest", 9, report=True),
    Made("Matérn 3/2 draw, rmsnorm", "rmsnorm", "matern32", 10, report=True),
    Made("exponential draw, simple", "simple", "exponential", 11, report=True),
    Made("Gaussian draw, short, original", "original", "gaussian", 12, report=True, shrink=0.5),
)
RETUNED = (
    Made("forest, original, retuned", "original", "forest", 21, report=False, retuned=True),
    Made("Gaussian draw, rmsnorm, retuned", "rmsnorm", "gaussian", 22, report=False, retuned=True),
    Made("Matérn 3/2 draw, simple, retuned", "simple", "matern32", 23, report=False, retuned=True),
    Made(
        "Matérn 3/2 draw, original, retuned", "original", "matern32", 24, report=True, retuned=True
    ),
    Made("forest, layernorm, retuned", "layernorm", "forest", 25, report=True, retuned=True),
    Made(
        "Gaussian draw, batchnorm, retuned", "batchnorm", "gaussian", 26, report=True, retuned=True
    ),
)
"""Truths for how rough a surface a search should expect."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a simulated training gave; `epochs` are at their limit where it did not converge."""

    seconds: float
    mql: float
    epochs: int

    @property
    def converged(self) -> bool:
        return self.epochs < MOST_EPOCHS


class Truth:
    """A job without noise, and with it."""

    def __init__(self, made: Made) -> None:
        self.made, self.name = made, made.name
        recorded = recordings(made.variant, retunes=made.retuned)
        self.noise = NOISE_OF_RETUNES if made.retuned else NOISE
        self.space: SearchSpace = recorded.space
        self.default = recorded.default_params
        self._recorded = recorded
        self._log_epochs = _surface(made, recorded, recorded.log_epochs, 0)
        # Seconds an epoch hang on the sizes alone and vary by 1 %.
        self._log_epoch_s = forest(recorded.where, recorded.log_epoch_s, seed=made.seed)
        fenced = np.minimum(recorded.mql, FENCE * recorded.default_mql)
        self._mql = _surface(made, recorded, fenced, 1)
        smooth = forest(recorded.where, fenced, seed=0)(recorded.where)
        self._floor = min(float(smooth.min()), recorded.default_mql) - SOFT
        here = recorded.default_where[None]
        self._epochs_off = recorded.default_log_epochs - float(self._log_epochs(here)[0])
        self._mql_off = recorded.default_mql - float(self._softened(here)[0])

    def mql(self, where: Array) -> Array:
        """The mean over seeds at places, (rows, coordinates): (rows,)."""
        found: Array = self._softened(where) + self._mql_off * self._near_default(where)
        return found

    def log_epochs(self, where: Array) -> Array:
        found = self._log_epochs(where) + self._epochs_off * self._near_default(where)
        return np.clip(found, np.log(LEAST_EPOCHS), np.log(1.5 * MOST_EPOCHS))

    def seconds(self, where: Array) -> Array:
        """The typical time."""
        found: Array = np.exp(self.log_epochs(where) + self._log_epoch_s(where))
        return found

    def where(self, params: dict[str, Any]) -> Array:
        return np.array([self.space.shares({name: params[name] for name in self.space.ranges})])

    def _softened(self, where: Array) -> Array:
        found: Array = self._floor + SOFT * np.logaddexp(0, (self._mql(where) - self._floor) / SOFT)
        return found

    def _near_default(self, where: Array) -> Array:
        apart = ((where - self._recorded.default_where) ** 2).sum(axis=1)
        found: Array = np.exp(-0.5 * apart / DIP**2)
        return found


def noise_of_mql(epochs: Array, random: np.random.Generator, noise: SeedNoise = NOISE) -> Array:
    """What a seed adds to the mean MQL of trainings of so many epochs."""
    length = np.log(epochs)
    sd = np.interp(length, np.log(noise.epochs), noise.sd)
    skew = np.interp(length, np.log((noise.epochs[0], noise.epochs[-1])), noise.skew)
    shape = 4 / skew**2
    found: Array = sd * (random.gamma(shape) - shape) / np.sqrt(shape)
    return found


def _surface(made: Made, recorded: Recordings, values: Array, part: int) -> Surface:
    if made.surface == "forest":
        leaf = RETUNED_LEAF if made.retuned else LEAF
        return forest(recorded.where, values, seed=made.seed, leaf=leaf)
    return draw(
        recorded.where, values, kernel=made.surface, shrink=made.shrink, seed=10 * made.seed + part
    )


@functools.cache
def truth(name: str) -> Truth:
    """The truth of this name, made once a process: fitted, or one of `made_jobs`."""
    if name.startswith("made, "):
        from benchmarks.verdict.made_jobs import job  # which is built on this module

        return job(name)
    return Truth(next(made for made in (*TRUTHS, *RETUNED) if made.name == name))
