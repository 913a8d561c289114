"""A GPU that trains configurations of a truth until its seconds are spent, and what a recommendation
is worth to whoever asked for it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.verdict.looked import in_order, looks, paired
from benchmarks.verdict.truths import (
    LEAST_EPOCHS,
    MOST_EPOCHS,
    NOISE_LOG_EPOCHS,
    SeedNoise,
    Training,
    noise_of_mql,
    truth,
)
from tuner.spec.margin import MARGIN, NO_LOSS, Question
from tuner.verdict.known_runs import Run
from tuner.worker.trial_source import LEAST_DEFAULTS, UNCAPPED

Array = np.ndarray[Any, Any]
Place = tuple[float, ...]

BUDGET_S = 240.0
"""Of a search, where nothing else is said."""
BESIDE_S = 0.03
"""What a training costs beside its own seconds where the next is made ready meanwhile."""
CUT_WORSE = 0.05
"""By how much a training that is cut off at its beginning would be worse; in between in proportion."""
SEEDS = 30
"""Of a confirmation, where nothing else is said."""
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
    cap: float | None = None
    """A training ends at so many times the default's median, as in a retune's searches."""
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
        found = self.drawn(where)
        limit_s = self._limit_s(where)
        if limit_s is not None and found.seconds > limit_s:
            # It did not converge: its error is that of a part of its training.
            rest = 1 - limit_s / found.seconds
            found = Training(limit_s, found.mql * (1 + CUT_WORSE * rest), MOST_EPOCHS)
        self.record(where, found)
        return found

    def _limit_s(self, where: Place) -> float | None:
        """As `tuner.worker.trial_source.cap_of`."""
        if (
            self.cap is None
            or where == self.default
            or len(self.trained) % UNCAPPED == UNCAPPED - 1
        ):
            return None
        times = [t.seconds for place, t in self.trained if place == self.default and t.converged]
        return self.cap * statistics.median(times) if len(times) >= LEAST_DEFAULTS else None

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

    def drawn(self, where: Place) -> Training:
        """One training on a fresh seed, not paid for yet."""
        known, random = self.known(where), self._random
        drawn = math.exp(known.log_epochs + NOISE_LOG_EPOCHS * random.standard_normal())
        epochs = int(np.clip(round(drawn), LEAST_EPOCHS, MOST_EPOCHS))
        seconds = epochs * math.exp(known.log_epoch_s + 0.01 * random.standard_normal())
        at = np.array([math.exp(known.log_epochs)])
        noise = noise_of_mql(at, random, truth(self.name).noise)
        return Training(seconds, known.mql + float(noise[0]), epochs)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a recommendation truly is. The default stands where nothing is recommended."""

    ratio: float
    """The true time of what is tested first, over the default's."""
    worse_by: float
    """Its true MQL over the default's, less 1."""
    confirmed: float
    """In which share of confirmations it is called no worse."""
    log_gain: float
    """Expected of the logarithm of what stands after a confirmation; more is better."""
    wrong: float
    """In which share of confirmations something stands that is truly beyond the margin."""
    confirmation_s: float
    """What a confirmation takes in the mean, the default's runs with it."""
    at_no_loss: float
    """In which share of confirmations something is called that."""

    @property
    def recommended(self) -> bool:
        return self.ratio != 1.0


def judged(gpu: Gpu, places: Sequence[Place], *, seeds: int = SEEDS) -> Judged:
    """Confirm a recommendation many times; the same every time.

    Of several `places` each is tested where all before it are called no worse: the last that is
    stands.
    """
    if not places or places[0] == gpu.default:
        return Judged(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    steps, default = [gpu.known(place) for place in places], gpu.known(gpu.default)
    saved = [default.log_seconds - step.log_seconds for step in steps]
    worse_by = [step.mql / default.mql - 1 for step in steps]
    trainings = [math.exp(step.log_seconds) + BESIDE_S for step in (*steps, default)]
    noise = truth(gpu.name).noise
    random = np.random.default_rng([gpu.seed, truth(gpu.name).made.seed, 30])
    stood, at_no_loss, took_s = [], 0, 0.0
    for _ in range(CONFIRMATIONS):
        others, *own = (_mqls(each, seeds, noise, random) for each in (default, *steps))
        claimed, ends = _in_order(own, others, MARGIN, Question.MARGIN)
        careful, later = _in_order(own, others, NO_LOSS, Question.NO_LOSS)
        ran = [max(each) for each in zip(ends, later, strict=True)]
        stood.append(claimed - 1)
        at_no_loss += careful > 0
        took_s += sum(n * each for n, each in zip([*ran, max(ran)], trainings, strict=True))
    return Judged(
        math.exp(-saved[0]),
        worse_by[0],
        sum(last >= 0 for last in stood) / CONFIRMATIONS,
        sum(saved[last] for last in stood if last >= 0) / CONFIRMATIONS,
        sum(worse_by[last] > MARGIN for last in stood if last >= 0) / CONFIRMATIONS,
        took_s / CONFIRMATIONS,
        at_no_loss / CONFIRMATIONS,
    )


def _in_order(
    own: Sequence[Array], default: Array, margin: float, question: Question
) -> tuple[int, list[int]]:
    tests = [paired(each, default, margin) for each in own]
    return in_order(tests, looks(len(default)), question)


def _mqls(known: Known, seeds: int, noise: SeedNoise, random: Any) -> Array:
    drawn = noise_of_mql(np.full(seeds, math.exp(known.log_epochs)), random, noise)
    return known.mql + drawn
