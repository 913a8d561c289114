"""Which place a user takes at the end of a search, by its runs alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.steps_tested import steps_tested
from benchmarks.verdict.truths import Training
from tuner.spec.margin import LEAST_RUNS, MARGIN
from tuner.spec.pareto import front_indices, knee_index
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, RunsModel
from tuner.verdict.stats.noninferiority import no_worse

PER_PERCENT = 1.0
"""Of the scalarised metric: what each per cent of MQL beyond the margin adds to the logarithm of
time."""


def scalarised(training: Training, default_mql: float) -> float:
    """One metric of two: the logarithm of time, and a price for what is beyond the margin.

    A library that wants one metric does not say which. This one asks what is asked here: the
    fastest that is no more than the margin worse than the default.
    """
    beyond = training.mql / default_mql - (1 + MARGIN)
    return math.log(training.seconds) + PER_PERCENT * max(0.0, 100 * beyond)


def knee(gpu: Gpu) -> Place | None:
    """The knee of the front of single runs; the default stays where that is no faster."""
    done = _converged(gpu)
    points = [(t.seconds, t.mql) for _, t in done]
    front = front_indices(points)
    if not front:
        return None
    where, found = done[front[knee_index([points[i] for i in front])]]
    return where if found.seconds < gpu.trained[0][1].seconds else None


def fastest_within(gpu: Gpu) -> Place | None:
    """The fastest run that is within the margin of the mean of the default's runs."""
    most = (1 + MARGIN) * default_mql(gpu)
    within = [(t.seconds, where) for where, t in _converged(gpu) if t.mql <= most]
    return min(within)[1] if within else None


def no_worse_by_its_runs(gpu: Gpu) -> tuple[Place, ...]:
    """Of what is faster than the default in the mean: all whose own runs show no loss beyond the
    margin, the slowest of them first.
    """
    runs: dict[Place, list[Training]] = {}
    for where, t in _converged(gpu):
        runs.setdefault(where, []).append(t)
    default = dict(enumerate(t.mql for t in runs.get(gpu.default, ())))
    found: list[tuple[float, Place]] = []
    limit = math.inf if not default else float(np.mean([t.seconds for t in runs[gpu.default]]))
    for where, mine in runs.items():
        seconds = float(np.mean([t.seconds for t in mine]))
        shown = no_worse(dict(enumerate(t.mql for t in mine)), default, margin=MARGIN)
        if shown is not None and shown.claimed and seconds < limit:
            found.append((seconds, where))
    return tuple(where for _, where in sorted(found, reverse=True))


def best_scalarised(gpu: Gpu) -> Place | None:
    """The run with the best scalarised metric."""
    quality = default_mql(gpu)
    scored = [(scalarised(t, quality), where) for where, t in _converged(gpu)]
    return min(scored)[1] if scored else None


def best_scalarised_mean(gpu: Gpu) -> Place | None:
    """The configuration whose runs, `LEAST_RUNS` or more, have the best mean of that metric."""
    quality = default_mql(gpu)
    scores: dict[Place, list[float]] = {}
    for where, t in _converged(gpu):
        scores.setdefault(where, []).append(scalarised(t, quality))
    means = [(float(np.mean(s)), where) for where, s in scores.items() if len(s) >= LEAST_RUNS]
    return min(means)[1] if means else None


def ours(gpu: Gpu) -> Place | None:
    """What `tuner verify --confirm` would test first if any number of runs of its own were enough."""
    return next(iter(steps(gpu, 1)), None)


def ours_after_five(gpu: Gpu) -> Place | None:
    """What it tests first where something ran again."""
    return next(iter(steps(gpu, LEAST_RUNS)), None)


RULES: Mapping[str, tuple[str, Callable[[Gpu], Place | None]]] = {
    "knee": ("the knee of the front of single runs", knee),
    "within": ("the fastest run within the margin", fastest_within),
    "scalarised": ("the run with the best scalarised metric", best_scalarised),
    "scalarised, mean": ("the best mean of the scalarised metric", best_scalarised_mean),
    "ours": ("our steps, one run is enough", ours),
    "ours after five runs": ("our steps", ours_after_five),
}
"""By name; "its model" is a contender's own and stands with it."""
SHOWN = "no worse by its runs"
OWN = "its model"


def in_words(rule: str) -> str:
    """What a report calls it."""
    return rule if rule in (OWN, SHOWN) else RULES[rule][0]


def tested(rule: str, gpu: Gpu) -> tuple[Place, ...]:
    """What a confirmation tests by this rule, in its order: several by ours, by others one."""
    if rule == SHOWN:
        return no_worse_by_its_runs(gpu)
    if rule in _LEAST:
        return steps(gpu, _LEAST[rule])
    where = RULES[rule][1](gpu)
    return () if where is None else (where,)


_LEAST = {"ours": 1, "ours after five runs": LEAST_RUNS}


def default_mql(gpu: Gpu) -> float:
    """The mean over the default's runs."""
    return float(np.mean([t.mql for where, t in gpu.trained if where == gpu.default]))


def _converged(gpu: Gpu) -> list[tuple[Place, Training]]:
    return [(where, t) for where, t in gpu.trained if t.converged]


def steps(gpu: Gpu, least_runs: int) -> tuple[Place, ...]:
    """What `tuner verify --confirm` tests, the surest first."""
    runs = gpu.runs()
    where = {run.trial: run.where for run in runs}
    if len(where) < LEAST_CONFIGURATIONS or gpu.default not in where.values():
        return ()
    return steps_tested(RunsModel(runs, 0), runs, least_runs=least_runs, of_each=least_runs)
