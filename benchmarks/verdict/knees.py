"""The protocol before: the knee of a search's front, on ten fresh seeds beside the default, judged
by paired tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.verdict.retunes import BESIDE_S
from benchmarks.verdict.searches import runs_of_search
from benchmarks.verdict.truths import MOST_EPOCHS, Training, noise_of_mql, truth
from tuner.spec.margin import MARGIN
from tuner.spec.pareto import front_indices, knee_index
from tuner.verdict.stats.pairs import Comparison, Question, Sample, judge

Array = np.ndarray[Any, Any]

SEEDS = 10


@dataclass(frozen=True, slots=True)
class Knee:
    """A search's knee as it truly is, and its verification with that of the default."""

    truth: str
    seed: int
    seconds: float
    mql: float
    epochs: float
    default_seconds: float
    default_mql: float
    default_epochs: float
    runs: tuple[Training, ...]
    of_default: tuple[Training, ...]
    search_s: float
    verification_s: float


def knee(found: dict[str, Any]) -> Knee:
    """What a search comes to; the same every time."""
    job = truth(found["truth"])
    random = np.random.default_rng([found["seed"], job.made.seed, 10])
    runs, search_s = runs_of_search(found, MOST_EPOCHS)
    points = [(run.seconds or 0.0, run.mql) for run in runs]
    front = front_indices(points)
    chosen = runs[front[knee_index([points[i] for i in front])]]
    here, default = np.array([chosen.where]), job.where(job.default)
    verified = tuple(job.runs(np.repeat(here, SEEDS, axis=0), random))
    of_default = tuple(job.runs(np.repeat(default, SEEDS, axis=0), random))
    return Knee(
        found["truth"],
        found["seed"],
        float(job.seconds(here)[0]),
        float(job.mql(here)[0]),
        float(np.exp(job.log_epochs(here)[0])),
        float(job.seconds(default)[0]),
        float(job.mql(default)[0]),
        float(np.exp(job.log_epochs(default)[0])),
        verified,
        of_default,
        search_s + BESIDE_S * len(found["trials"]),
        sum(run.seconds for run in (*verified, *of_default)) + 2 * SEEDS * BESIDE_S,
    )


def between(a: Knee, b: Knee, *, ratio: float = 1.0) -> Comparison:
    """Two knees held against each other, the times of the first one planted `ratio` times as long."""
    (answer,) = judge(
        [_sample("a", a.runs, ratio), _sample("b", b.runs, 1.0)],
        [Question(a="a", b="b", family="between")],
    )
    return answer


def at_the_margin(found: Knee, times: int) -> list[Comparison]:
    """The knee against its default, its true MQL moved exactly to the margin: new seeds each time."""
    job = truth(found.truth)
    random = np.random.default_rng([found.seed, job.made.seed, 11])
    answers = []
    for _ in range(times):
        own = found.default_mql * (1 + MARGIN) + noise_of_mql(np.full(SEEDS, found.epochs), random)
        others = found.default_mql + noise_of_mql(np.full(SEEDS, found.default_epochs), random)
        answers += judge(
            [
                _sample("a", _with(found.runs, own), 1.0),
                _sample("b", _with(found.of_default, others), 1.0),
            ],
            [Question(a="a", b="b", family="within")],
        )
    return answers


def _with(runs: Sequence[Training], mqls: Array) -> tuple[Training, ...]:
    return tuple(replace(run, mql=float(mql)) for run, mql in zip(runs, mqls, strict=True))


def _sample(name: str, runs: Sequence[Training], ratio: float) -> Sample:
    good = {seed: run for seed, run in enumerate(runs) if run.converged}
    return Sample(
        name=name,
        seconds={seed: ratio * run.seconds for seed, run in good.items()},
        mql={seed: run.mql for seed, run in good.items()},
        runs=len(runs),
        misses=len(runs) - len(good),
    )
