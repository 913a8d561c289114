"""What the model of repeated runs may believe before it sees any, for simulations that compare it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tuner.search import repeated_runs

Normal = tuple[float, float]
"""Mean and standard deviation of a logarithm, or of a power."""


@dataclass(frozen=True, slots=True)
class Prior:
    """The priors of tuner/search/repeated_runs.py."""

    name: str
    effect: Normal
    slope: Normal
    length: Normal


PRIORS = (
    Prior("rough, as before 2026-11-26", (math.log(0.06), 0.6), (1.5, 0.7), (-1.0, 0.5)),
    Prior("smaller effects", (math.log(0.006), 0.6), (1.5, 0.7), (-1.0, 0.5)),
    Prior("and longer lengths", (math.log(0.006), 0.6), (0.7, 0.4), (-0.5, 0.5)),
    Prior("smooth", (math.log(0.002), 0.6), (0.7, 0.4), (0.0, 0.5)),
)


@contextmanager
def believing(prior: Prior) -> Iterator[None]:
    """Everything in this process goes by it meanwhile."""
    before = repeated_runs.EFFECT_PRIOR, repeated_runs.SLOPE_PRIOR, repeated_runs.LENGTH_PRIOR
    set_priors(prior.effect, prior.slope, prior.length)
    try:
        yield
    finally:
        set_priors(*before)


def set_priors(effect: Normal, slope: Normal, length: Normal) -> None:
    repeated_runs.EFFECT_PRIOR = effect
    repeated_runs.SLOPE_PRIOR = slope
    repeated_runs.LENGTH_PRIOR = length
