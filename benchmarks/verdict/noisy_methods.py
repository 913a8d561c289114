"""Methods that search and verify at equal GPU seconds, and what each comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verdict.budgets import Gpu, Judged, Place, judged
from benchmarks.verdict.confirmations import AtLevel, answered
from benchmarks.verdict.next_runs import NextSeeds, Searched
from benchmarks.verdict.retunes import Answer, Retune, registered_level
from benchmarks.verdict.truths import Training, truth
from tuner.spec.margin import LEAST_RUNS, MARGIN
from tuner.verdict.confirmation_plan import confirmation_steps
from tuner.verdict.recommendation import CHANCE, recommend, to_verify
from tuner.verdict.runs_model import RunsModel

BUDGET_S = 240.0
MODEL_S = 1.0
"""What a GPU waits for the model between two rounds; while a trial trains, nothing waits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search's: what is recommended, and its answer at the registered level."""

    truth: str
    seed: int
    method: str
    recommended: Judged
    at_level: float
    """The time of the answer over the default's."""
    within_level: bool
    trainings: int
    configurations: int


def alternate(name: str, seed: int) -> dict[str, Any]:
    """A search by `alternate` until the budget is spent."""
    gpu = Gpu(name, seed, BUDGET_S)
    Searched(gpu, "alternate").spend()
    rows = [[*where, t.seconds, t.mql, t.epochs] for where, t in gpu.trained]
    return {"truth": name, "seed": seed, "trials": rows}


def begun(found: dict[str, Any], share: float) -> Gpu:
    """The GPU after this share of its budget went into a search by `alternate`."""
    gpu = Gpu(found["truth"], found["seed"], BUDGET_S)
    for row in found["trials"]:
        if gpu.spent_s >= share * BUDGET_S:
            break
        gpu.record(tuple(row[:-3]), Training(*row[-3:]))
    return gpu


def rounds(gpu: Gpu, most: int, configurations: int, seeds: int) -> None:
    """Verification as `tuner verify` does it, until the budget is spent."""
    for _ in range(most):
        gpu.wait(MODEL_S)
        where = {run.trial: run.where for run in gpu.runs()}
        for trial in (0, *to_verify(RunsModel(gpu.runs(), 0), configurations)):
            for _ in range(seeds):
                if gpu.left_s > 0:
                    gpu.train(where[trial])
        if gpu.left_s <= 0:
            break


def fastest(model: RunsModel) -> int | None:
    """What was recommended before: the fastest that is surely as good."""
    sure = model.chance_of_default(MARGIN) >= CHANCE
    may = np.flatnonzero(model.faster(None) & sure & (model.runs >= LEAST_RUNS))
    return model.trials[may[np.argmin(model.seconds[may])]] if len(may) else None


def best(model: RunsModel) -> int | None:
    chosen = recommend(model, least_runs=LEAST_RUNS).chosen
    return chosen.trial if chosen else None


def today(found: dict[str, Any]) -> Gpu:
    gpu = begun(found, 0.77)
    rounds(gpu, 3, 6, 6)
    return gpu


def small_rounds(found: dict[str, Any]) -> Gpu:
    gpu = begun(found, 0.6)
    rounds(gpu, 100, 3, 4)
    return gpu


def again(found: dict[str, Any]) -> Gpu:
    gpu = begun(found, 0.6)
    NextSeeds(gpu).spend()
    return gpu


def alone(found: dict[str, Any]) -> Gpu:
    gpu = Gpu(found["truth"], found["seed"], BUDGET_S)
    Searched(gpu, "kg").spend()
    return gpu


Spend = Callable[[dict[str, Any]], Gpu]
METHODS: Sequence[tuple[str, Spend, Callable[[RunsModel], int | None]]] = (
    ("alternate 77 %, 3 rounds of 6 x 6; the fastest", today, fastest),
    ("alternate 77 %, 3 rounds of 6 x 6; to be confirmed", today, best),
    ("alternate 60 %, rounds of 3 x 4; the fastest", small_rounds, fastest),
    ("alternate 60 %, rounds of 3 x 4; to be confirmed", small_rounds, best),
    ("alternate 60 %, then seeds one by one; to be confirmed", again, best),
    ("new or again from the start; to be confirmed", alone, best),
)


def outcome(gpu: Gpu, method: str, choose: Callable[[RunsModel], int | None]) -> Outcome:
    runs = gpu.runs()
    model = RunsModel(runs, 0)
    where = {run.trial: run.where for run in runs}
    chosen = choose(model)
    at, ratio = at_level(gpu, model, least_runs=LEAST_RUNS)
    return Outcome(
        gpu.name,
        gpu.seed,
        method,
        judged(gpu, () if chosen is None else (where[chosen],)),
        ratio,
        at.truly_within,
        len(gpu.trained),
        len(where),
    )


def at_level(gpu: Gpu, model: RunsModel, *, least_runs: int) -> tuple[AtLevel, float]:
    """A search's answer at the registered level, of what has run so often, and its time over the
    default's.
    """
    runs = gpu.runs()
    where = {run.trial: run.where for run in runs}
    level, _ = registered_level(truth(gpu.name))
    enough = [n for n, ran in zip(model.trials, model.runs, strict=True) if ran >= least_runs]
    offered = confirmation_steps(model, None, margin=MARGIN, candidates=enough)
    default = _answer(gpu, gpu.default)
    at = answered(
        Retune(
            gpu.name,
            gpu.seed,
            default,
            {},
            level,
            {},
            tuple(_answer(gpu, where[each.trial]) for each in offered),
            gpu.spent_s,
            0.0,
            len(runs),
        )
    )
    return at, at.seconds / default.seconds


def _answer(gpu: Gpu, where: Place) -> Answer:
    known = gpu.known(where)
    seconds, epochs = math.exp(known.log_seconds), math.exp(known.log_epochs)
    return Answer(where, seconds, known.mql, epochs, where == gpu.default, 1.0)
