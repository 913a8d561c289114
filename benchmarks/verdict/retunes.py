"""What one search leads to: configurations run again, a recommendation, and what it truly is.

A retune is a search (benchmarks/verdict/searches.py), verification in rounds (each asks the model of
all runs so far which configurations are worth running again, the default with them), and the
recommendation by all runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verdict.searches import runs_of_search
from benchmarks.verdict.truths import MOST_EPOCHS, Truth, truth
from tuner.spec.margin import LEAST_RUNS, MARGIN
from tuner.verdict.confirmation_plan import confirmation_steps
from tuner.verdict.known_runs import Run
from tuner.verdict.recommendation import recommend, recommend_at, to_verify
from tuner.verdict.runs_model import Estimate, RunsModel

Array = np.ndarray[Any, Any]

LEVEL_RUNS = 30
"""Runs of the default that a registered level is measured by."""
BESIDE_S = 0.17
"""What a training costs beside its own seconds (benchmarks/study_overhead)."""


@dataclass(frozen=True, slots=True)
class Verification:
    """In so many rounds, so many configurations and the default on so many seeds each."""

    rounds: int
    configurations: int
    seeds: int
    policy: str = "answers"
    """`answers`: those that may be the answer (`to_verify`); `fastest`: the fastest that may be as
    good."""

    @property
    def name(self) -> str:
        if not self.rounds:
            return "none"
        return f"{self.rounds} x {self.configurations} x {self.seeds}, {self.policy}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a retune recommends, as it truly is: the default where nothing else is surely enough."""

    where: tuple[float, ...]
    seconds: float
    mql: float
    """The true mean over seeds."""
    epochs: float
    default: bool
    chance: float
    """What the model said of it."""


@dataclass(frozen=True, slots=True)
class Retune:
    """One search with its verification, and its answers by how sure they had to be."""

    truth: str
    seed: int
    default: Answer
    answers: dict[float, Answer]
    """As good as the default, by the chance that was asked for."""
    level: float
    """The registered one, as it was measured."""
    at_level: dict[float, Answer]
    """At the registered level, which is the default's own: the default reaches it by definition."""
    offered: tuple[Answer, ...]
    """What is tested there, the surest first."""
    search_s: float
    verification_s: float
    trainings: int


def retune(found: dict[str, Any], how: Verification, chances: Sequence[float]) -> Retune:
    """What a search leads to; the same every time."""
    job = truth(found["truth"])
    random = np.random.default_rng([found["seed"], job.made.seed, 4711])
    runs, search_s = runs_of_search(found, MOST_EPOCHS)
    search_s += BESIDE_S * len(found["trials"])
    model = RunsModel(runs, 0)
    verification_s, trainings = 0.0, len(found["trials"])
    for _ in range(how.rounds):
        again = again_of(runs, (0, *_chosen(model, how)), how.seeds, job, random)
        verification_s += sum(run.seconds or 0.0 for run in again) + BESIDE_S * len(again)
        trainings += len(again)
        runs += again
        model = RunsModel(runs, 0)
    where = {run.trial: run.where for run in runs}
    level, error = registered_level(job)
    least = LEAST_RUNS if how.rounds else 1
    answers, at_level = {}, {}
    offered = confirmation_steps(model, None, margin=MARGIN, seeds=LEVEL_RUNS)
    default = _truly(job, where[0], 1.0, default=True)
    for chance in chances:
        own = recommend(model, chance=chance, least_runs=least).chosen
        answers[chance] = _answer(job, where, own) or default
        at = recommend_at(model, level, error=error, chance=chance, least_runs=least).chosen
        at_level[chance] = _answer(job, where, at) or default
    return Retune(
        found["truth"],
        found["seed"],
        default,
        answers,
        level,
        at_level,
        tuple(_truly(job, where[each.trial], each.chance, default=False) for each in offered),
        search_s,
        verification_s,
        trainings,
    )


def registered_level(job: Truth) -> tuple[float, float]:
    """The default's MQL with its margin, as so many runs measured it, and the relative standard
    error of that.
    """
    random = np.random.default_rng([job.made.seed, 99])
    here = job.where(job.default)
    measured = [job.runs(here, random)[0].mql for _ in range(LEVEL_RUNS)]
    error = float(np.std(measured, ddof=1)) / math.sqrt(LEVEL_RUNS)
    default = float(np.median(measured))
    return (1 + MARGIN) * default, error / default


def again_of(
    runs: Sequence[Run],
    trials: Sequence[int],
    seeds: int,
    job: Truth,
    random: np.random.Generator,
) -> list[Run]:
    """Each of these configurations on so many fresh seeds; what did not converge is no run."""
    where = {run.trial: run.where for run in runs}
    places = np.array([where[trial] for trial in trials for _ in range(seeds)])
    numbers = [trial for trial in trials for _ in range(seeds)]
    return [
        Run(trial=number, where=where[number], seconds=t.seconds, mql=t.mql, epochs=t.epochs)
        for number, t in zip(numbers, job.runs(places, random), strict=True)
        if t.converged
    ]


def _chosen(model: RunsModel, how: Verification) -> tuple[int, ...]:
    if how.policy == "answers":
        return to_verify(model, how.configurations)
    chances = model.chance_of_default(MARGIN)
    may = np.flatnonzero(model.faster(None) & (chances > 0.05) & (chances < 0.99))
    fastest = may[np.argsort(model.seconds[may])][: how.configurations]
    return tuple(model.trials[i] for i in fastest)


def _answer(job: Truth, where: dict[int, Any], chosen: Estimate | None) -> Answer | None:
    if chosen is None:
        return None
    return _truly(job, where[chosen.trial], chosen.chance, default=chosen.trial == 0)


def _truly(job: Truth, where: tuple[float, ...], chance: float, *, default: bool) -> Answer:
    here = np.array([where])
    return Answer(
        where,
        float(job.seconds(here)[0]),
        float(job.mql(here)[0]),
        float(np.exp(job.log_epochs(here)[0])),
        default,
        chance,
    )
