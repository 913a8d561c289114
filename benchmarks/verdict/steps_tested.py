"""What `tuner verify --confirm` tests of a simulated search."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.verdict.budgets import Place
from tuner.spec.margin import CONFIRMATION_SEEDS, LEAST_RUNS, MARGIN, STEPS
from tuner.verdict.confirmation_plan import confirmation_steps
from tuner.verdict.known_runs import Run
from tuner.verdict.recommendation import recommend
from tuner.verdict.runs_model import RunsModel


def steps_tested(
    model: RunsModel,
    runs: Sequence[Run],
    *,
    least_runs: int = LEAST_RUNS,
    of_each: int = 1,
    seeds: int = CONFIRMATION_SEEDS,
    most: int = STEPS,
) -> tuple[Place, ...]:
    """The places that are tested, the surest first; `model` is of the runs.

    What is recommended has run `least_runs` times, what is tested `of_each` times: five, before
    docs/decisions/0010.
    """
    where = {run.trial: run.where for run in runs}
    chosen = recommend(model, least_runs=least_runs).chosen
    steps = confirmation_steps(
        model,
        chosen.trial if chosen else None,
        margin=MARGIN,
        seeds=seeds,
        most=most,
        candidates=[t for t, n in zip(model.trials, model.runs, strict=True) if n >= of_each],
    )
    return tuple(where[each.trial] for each in steps)
