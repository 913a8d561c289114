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
    """The last that is claimed of what is tested, the surest first, else its default; the same
    every time. All of them run, as they do where somebody asks.
    """
    job = truth(retune.truth)
    random = np.random.default_rng([retune.seed, job.made.seed, 33])
    asked = (*retune.offered, retune.default)
    times, mqls, spent = [], [], 0.0
    for answer in asked:
        runs = job.runs(np.repeat([answer.where], SEEDS, axis=0), random)
        times.append(float(np.median([run.seconds for run in runs])))
        mqls.append({seed: run.mql for seed, run in enumerate(runs)})
        spent += sum(run.seconds for run in runs) + SEEDS * BESIDE_S
    place = -1
    for step, mql in enumerate(mqls[:-1]):
        test = no_worse(mql, mqls[-1], margin=MARGIN)
        if test is None or not test.claimed:
            break
        place = step
    answer = asked[place]
    within = answer.default or answer.mql <= retune.level
    return AtLevel(times[place], within, answer.default, spent)


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
