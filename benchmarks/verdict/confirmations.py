"""What a retune's recommendation is confirmed to be: with the default on 30 seeds that nobody has
seen, and what is said of it then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verdict.retunes import BESIDE_S, Answer, Retune
from benchmarks.verdict.truths import noise_of_mql, truth
from tuner.spec.margin import MARGIN
from tuner.verdict.recommendation import time_at_level
from tuner.verdict.stats.noninferiority import no_worse

Array = np.ndarray[Any, Any]

SEEDS = 30
TIMES_OF_A_TRUTH = 20
"""How often each recommendation is confirmed with a truth planted exactly at the margin."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """`seconds` is the geometric mean of the runs; `claimed` that it is as good as the default."""

    seconds: float
    claimed: bool
    spent_s: float


def confirmed(retune: Retune, answer: Answer) -> Confirmed:
    """An answer and the default on fresh seeds each; the same every time."""
    job = truth(retune.truth)
    random = np.random.default_rng([retune.seed, job.made.seed, 30])
    runs = job.runs(np.repeat([answer.where], SEEDS, axis=0), random)
    of_default = job.runs(np.repeat([retune.default.where], SEEDS, axis=0), random)
    found = no_worse(
        dict(enumerate(run.mql for run in runs)),
        dict(enumerate(run.mql for run in of_default)),
        margin=MARGIN,
    )
    assert found is not None, "there are runs enough"
    spent = sum(run.seconds for run in (*runs, *of_default)) + 2 * SEEDS * BESIDE_S
    return Confirmed(
        float(np.exp(np.mean(np.log([run.seconds for run in runs])))), found.claimed, spent
    )


@dataclass(frozen=True, slots=True)
class AtLevel:
    """What a search answers at the registered level: `seconds` as confirmed, and what is true."""

    seconds: float
    truly_within: bool
    default: bool
    spent_s: float


def answered(retune: Retune) -> AtLevel:
    """The first that is confirmed of what a search offers at the level, else its default; the same
    every time.
    """
    job = truth(retune.truth)
    random = np.random.default_rng([retune.seed, job.made.seed, 33])
    confirmed_: list[tuple[float, float]] = []
    spent = 0.0
    for answer in (*retune.offered, retune.default):
        runs = job.runs(np.repeat([answer.where], SEEDS, axis=0), random)
        seconds = float(np.exp(np.mean(np.log([run.seconds for run in runs]))))
        # The level is the default's own: the default is within it whatever these seeds say.
        mql = 0.0 if answer.default else float(np.mean([run.mql for run in runs]))
        confirmed_.append((seconds, mql))
        spent += sum(run.seconds for run in runs) + SEEDS * BESIDE_S
        if mql <= retune.level:
            break
    found = time_at_level(retune.level, confirmed_, (seconds, mql))
    within = answer.default or answer.mql <= retune.level
    return AtLevel(found, within, answer.default, spent)


def wrong_at_the_margin(retune: Retune, answer: Answer, seeds: int = SEEDS) -> list[bool]:
    """Whether it is called as good as the default, with its truth moved exactly to the margin: new
    seeds each time.
    """
    job = truth(retune.truth)
    random = np.random.default_rng([retune.seed, job.made.seed, 31])
    return [_claims(retune, answer, random, seeds) for _ in range(TIMES_OF_A_TRUTH)]


def _claims(retune: Retune, answer: Answer, random: np.random.Generator, seeds: int) -> bool:
    default = retune.default.mql
    own = noise_of_mql(np.full(seeds, answer.epochs), random) + (1 + MARGIN) * default
    others = noise_of_mql(np.full(seeds, retune.default.epochs), random) + default
    found = no_worse(dict(enumerate(own)), dict(enumerate(others)), margin=MARGIN)
    assert found is not None, "there are runs enough"
    return found.claimed
