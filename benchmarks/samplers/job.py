"""What a sampler comparison asks: outcomes with the job's noise to search by, noise-free ones to judge by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tuner.spec.space import SearchSpace

Params = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One trial: seconds and MQL, or None where it diverged; `converged` False where a limit cut it."""

    values: tuple[float, float] | None
    converged: bool = True


class Job(Protocol):
    """A training job without the training."""

    name: str
    space: SearchSpace
    default: dict[str, float]

    def run(self, params: Params, random: np.random.Generator) -> Outcome:
        """One trial of a configuration, with the noise of a seed."""

    def truth(self, params: Params) -> Outcome:
        """The configuration without noise."""


def reference(job: Job) -> tuple[float, float]:
    """The point that bounds the hypervolume: twice the default's time and 1.05 times its MQL, both without noise.

    What is slower or worse than that nobody would choose, and counts nothing.
    """
    values = job.truth(job.default).values
    assert values is not None, "the default configuration works"
    return 2.0 * values[0], 1.05 * values[1]
