"""What the model of repeated runs may believe before it sees any, for simulations that compare it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from tuner.search import next_run_model

Normal = tuple[float, float]
"""Mean and standard deviation of a logarithm, or of a power."""


@dataclass(frozen=True, slots=True)
class Prior:
    """The priors of tuner/search/next_run_model.py."""

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
    name = next_run_model.__name__
    with (
        patch(f"{name}.EFFECT_PRIOR", prior.effect),
        patch(f"{name}.SLOPE_PRIOR", prior.slope),
        patch(f"{name}.LENGTH_PRIOR", prior.length),
    ):
        yield
