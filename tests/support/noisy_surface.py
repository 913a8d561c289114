"""A surface whose truth is known, a noise on it, and searches of it by the sampler `kg`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from tuner.search.history import TrialHistory
from tuner.search.sampler import EncodedSampler, SobolPoints
from tuner.spec.margin import MARGIN
from tuner.spec.study_file import load_study_file

FILE = load_study_file("rmsnorm")
SPACE = FILE.space
DEFAULT = FILE.default_hyperparameters().as_dict()
NOISE = 0.01
Violations = Callable[[tuple[float, float], Any], dict[str, float]]


def true_seconds(params: dict[str, Any]) -> float:
    rate, _, _, _, batch = SPACE.shares(params)
    return 10 * math.exp(-1.2 * rate - 0.8 * batch)


def true_mql(params: dict[str, Any]) -> float:
    """The faster, the worse, beyond a certain point."""
    rate, _, dropout, _, batch = SPACE.shares(params)
    return 0.8 * (1 + 0.2 * max(rate + batch - 1.3, 0.0) ** 2 + 0.1 * (dropout - 0.5) ** 2)


def measured(params: dict[str, Any], number: int) -> tuple[float, float]:
    time_, mql = np.random.default_rng([number, 1]).standard_normal(2)
    return (
        true_seconds(params) * math.exp(0.1 * time_),
        true_mql(params) * math.exp(NOISE * mql),
    )


def worth(params: dict[str, Any]) -> float:
    """How much time it truly saves where it is as good as the default."""
    saved = math.log(true_seconds(DEFAULT) / true_seconds(params))
    return saved if true_mql(params) <= (1 + MARGIN) * true_mql(DEFAULT) else 0.0


def sampler(
    name: str = "kg",
    *,
    violations: Violations | None = None,
    seed: int = 3,
    budget: int | None = None,
) -> EncodedSampler:
    history = TrialHistory(SPACE, violations=violations)
    return EncodedSampler(SPACE, name, seed=seed, default=DEFAULT, history=history, budget=budget)


def searched(
    trials: int, *, restarted: bool = False, violations: Violations | None = None, seed: int = 3
) -> Study:
    study = optuna.create_study(
        directions=["minimize", "minimize"], sampler=sampler(violations=violations, seed=seed)
    )
    study.enqueue_trial(SPACE.held(DEFAULT))
    for _ in range(trials):
        if restarted:
            study.sampler = sampler(violations=violations, seed=seed)
        trial = study.ask(SPACE.stored())
        study.tell(trial, measured(trial.params, trial.number))
    return study


def begun(trials: int, *, default: TrialState = TrialState.COMPLETE) -> Study:
    """Runs of Sobol points, and the default's."""
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
    for number in range(trials):
        params = SPACE.at(SobolPoints(5, 8).point(number)) if number else DEFAULT
        state = TrialState.COMPLETE if number else default
        study.add_trial(
            create_trial(
                params=SPACE.held(params),
                distributions=SPACE.stored(),
                values=measured(params, number) if state is TrialState.COMPLETE else None,
                state=state,
                user_attrs={"stopped_by": "converged" if state is default else "diverged"},
            )
        )
    return study


def asked(study: Study) -> list[dict[str, Any]]:
    return [SPACE.true(trial.params) for trial in study.trials]
