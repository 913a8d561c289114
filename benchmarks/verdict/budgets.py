"""A GPU that trains configurations of a truth until its seconds are spent, and what a recommendation
is worth to whoever asked for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.verdict.truths import (
    LEAST_EPOCHS,
    MOST_EPOCHS,
    NOISE_LOG_EPOCHS,
    Training,
    noise_of_mql,
    truth,
)
from tuner.spec.margin import MARGIN
from tuner.verdict.known_runs import Run
from tuner.verdict.stats.noninferiority import no_worse

Array = np.ndarray[Any, Any]
Place = tuple[float, ...]

BESIDE_S = 0.03
"""What a training costs beside its own seconds where the next is made ready meanwhile."""
SEEDS = 30
CONFIRMATIONS = 200
"""How often a recommendation is confirmed, so that one lucky confirmation does not count."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is true of a place: logarithms of its epochs and of an epoch's seconds, and its MQL."""

    log_epochs: float
    log_epoch_s: float
    mql: float

    @property
    def log_seconds(self) -> float:
        return self.log_epochs + self.log_epoch_s


@dataclass(slots=True)
class Gpu:
    """Trainings of one truth, one after the other; the first seed of two is the search's."""

    name: str
    seed: int
    budget_s: float
    spent_s: float = 0.0
    trained: list[tuple[Place, Training]] = field(default_factory=list)
    _known: dict[Place, Known] = field(default_factory=dict)
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng([self.seed, truth(self.name).made.seed, 77])

    @property
    def default(self) -> Place:
        job = truth(self.name)
        return tuple(job.where(job.default)[0].tolist())

    @property
    def left_s(self) -> float:
        return self.budget_s - self.spent_s

    def train(self, where: Place) -> Training:
        """One training on a fresh seed, paid for."""
        found = self._drawn(where, self._random)
        self.record(where, found)
        return found

    def record(self, where: Place, training: Training) -> None:
        """A training that was made before, paid for."""
        self.spent_s += training.seconds + BESIDE_S
        self.trained.append((where, training))

    def wait(self, seconds: float) -> None:
        """What nothing trains for."""
        self.spent_s += seconds

    def runs(self) -> list[Run]:
        """What converged, by configuration."""
        numbers: dict[Place, int] = {}
        found = []
        for where, t in self.trained:
            number = numbers.setdefault(where, len(numbers))
            if t.converged:
                found.append(
                    Run(trial=number, where=where, seconds=t.seconds, mql=t.mql, epochs=t.epochs)
                )
        return found

    def known(self, where: Place) -> Known:
        if where not in self._known:
            job, here = truth(self.name), np.array([where])
            log_s, log_epochs = (
                math.log(float(job.seconds(here)[0])),
                float(job.log_epochs(here)[0]),
            )
            self._known[where] = Known(log_epochs, log_s - log_epochs, float(job.mql(here)[0]))
        return self._known[where]

    def _drawn(self, where: Place, random: np.random.Generator) -> Training:
        known = self.known(where)
        drawn = math.exp(known.log_epochs + NOISE_LOG_EPOCHS * random.standard_normal())
        epochs = int(np.clip(round(drawn), LEAST_EPOCHS, MOST_EPOCHS))
        seconds = epochs * math.exp(known.log_epoch_s + 0.01 * random.standard_normal())
        noise = noise_of_mql(np.array([math.exp(known.log_epochs)]), random)
        return Training(seconds, known.mql + float(noise[0]), epochs)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a recommendation truly is. The default stands where nothing is recommended."""

    ratio: float
    """Its true time over the default's."""
    worse_by: float
    """Its true MQL over the default's, less 1."""
    confirmed: float
    """In which share of confirmations it is called no worse."""

    @property
    def log_gain(self) -> float:
        """Expected of the logarithm of what stands after a confirmation; more is better."""
        return -math.log(self.ratio) * self.confirmed

    @property
    def recommended(self) -> bool:
        return self.ratio != 1.0


def judged(gpu: Gpu, where: Place | None) -> Judged:
    """Confirm a recommendation many times; the same every time."""
    if where is None or where == gpu.default:
        return Judged(1.0, 0.0, 0.0)
    one, default = gpu.known(where), gpu.known(gpu.default)
    random = np.random.default_rng([gpu.seed, truth(gpu.name).made.seed, 30])
    claims = 0
    for _ in range(CONFIRMATIONS):
        own = one.mql + noise_of_mql(np.full(SEEDS, math.exp(one.log_epochs)), random)
        others = default.mql + noise_of_mql(np.full(SEEDS, math.exp(default.log_epochs)), random)
        found = no_worse(dict(enumerate(own)), dict(enumerate(others)), margin=MARGIN)
        assert found is not None, "there are runs enough"
        claims += found.claimed
    return Judged(
        math.exp(one.log_seconds - default.log_seconds),
        one.mql / default.mql - 1,
        claims / CONFIRMATIONS,
    )
