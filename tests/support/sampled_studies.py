"""Optuna studies of a small space, with trials that a sampler asked for, or that were recorded."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import create_trial

from tuner.search.sampler import EncodedSampler, SobolPoints
from tuner.spec.space import SearchSpace
from tuner.spec.study_file import load_study_file

FILE = load_study_file("rmsnorm")
SPACE = FILE.space


def new_study(sampler: str, *, seed: int = 0, space: SearchSpace = SPACE) -> Study:
    return optuna.create_study(
        directions=["minimize", "minimize"], sampler=EncodedSampler(space, sampler, seed=seed)
    )


def run(study: Study, trials: int, *, space: SearchSpace = SPACE) -> list[dict[str, Any]]:
    asked = []
    for _ in range(trials):
        trial = study.ask(space.stored())
        study.tell(trial, [trial.params["hidden_size"] / 64, 1 - trial.params["dropout"]])
        asked.append(space.true(trial.params))
    return asked


def record(study: Study, trials: int) -> None:
    """Finished trials of the Sobol sequence, without asking."""
    points = SobolPoints(5, 99)
    for index in range(trials):
        params = SPACE.at(points.point(index))
        values = [float(params["hidden_size"]) / 64, 1 - float(params["dropout"])]
        study.add_trial(
            create_trial(params=SPACE.held(params), distributions=SPACE.stored(), values=values)
        )
