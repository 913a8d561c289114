"""Another program at our study: plain Optuna that asks, tells, enqueues, adds, changes and deletes, until it is ended."""

# ruff: noqa: SLF001 - it does what nobody should
from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

Action = Callable[[Study, random.Random], object]
GARBAGE = ("no number", None, -1, True, [1, {"a": 2}], float("inf"), 10**30, "[/red]\x1b[2J")


def _running(study: Study, draw: random.Random) -> FrozenTrial:
    """Somebody's trial that runs; LookupError where none does."""
    return draw.choice(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))


def ask_and_complete(study: Study, draw: random.Random) -> None:
    trial = study.ask()
    trial.suggest_float("dropout", 0.0, 0.9)
    study.tell(trial, [draw.choice((0.0, 1e-9, float("inf"))), 0.0])


def ask_and_fail(study: Study, draw: random.Random) -> None:
    study.tell(study.ask(), state=draw.choice((TrialState.FAIL, TrialState.PRUNED)))


def ask_and_leave(study: Study, draw: random.Random) -> None:
    if draw.random() < 0.2:
        study.ask({"depth": CategoricalDistribution(("deep", "flat"))})


def enqueue(study: Study, draw: random.Random) -> None:
    name = draw.choice(("dropout", "learning_rate", "hidden_size", "unheard_of"))
    value = draw.choice(GARBAGE) if draw.random() < 0.3 else draw.random() / 4
    study.enqueue_trial(
        {name: value}, user_attrs={"default": True, "warm_start": draw.choice(GARBAGE)}
    )


def add_complete(study: Study, draw: random.Random) -> None:
    values = [draw.choice((0.001, float("inf"))), 0.001]
    study.add_trial(
        create_trial(values=values, user_attrs={"converged": True, "epochs": draw.choice(GARBAGE)})
    )


def add_waiting(study: Study, draw: random.Random) -> None:
    params, distributions = (
        {"dropout": 10 * draw.random()},
        {"dropout": FloatDistribution(0.0, 10.0)},
    )
    study.add_trial(
        create_trial(state=TrialState.WAITING, params=params, distributions=distributions)
    )


def tell_a_running_one(study: Study, draw: random.Random) -> None:
    number = _running(study, draw).number
    how = draw.choice((TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED))
    study.tell(number, values=[0.0, 0.0] if how == TrialState.COMPLETE else None, state=how)


def change_a_running_one(study: Study, draw: random.Random) -> None:
    trial_id = _running(study, draw)._trial_id
    storage = study._storage
    for key in ("seed", "device", "stopped_by", "converged", "default", "execution"):
        storage.set_trial_user_attr(trial_id, key, draw.choice(GARBAGE))
    storage.set_trial_system_attr(
        trial_id, draw.choice(("constraints:max_time", "fixed_params")), draw.choice(GARBAGE)
    )
    storage.set_trial_param(trial_id, "weight", 0.5, FloatDistribution(0.0, 1.0))


def its_own_study(study: Study, draw: random.Random) -> None:
    name = f"foreign-{draw.random()}"
    other = optuna.create_study(study_name=name, storage=study._storage, directions=["minimize"])
    other.tell(other.ask(), 1.0)
    optuna.delete_study(study_name=name, storage=study._storage)


ACTIONS: tuple[Action, ...] = (
    ask_and_complete,
    ask_and_fail,
    ask_and_leave,
    enqueue,
    add_complete,
    add_waiting,
    tell_a_running_one,
    tell_a_running_one,
    change_a_running_one,
    its_own_study,
)


def interfere(
    storage: str, name: str, *, seed: int, pause_s: float, done: Path, actions: int | None = None
) -> None:
    """Do one thing after another, and keep count in the file `done`."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    draw, counted = random.Random(seed), Counter[str]()
    study = optuna.load_study(
        study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler(seed=seed)
    )
    left = actions
    while left is None or left > 0:
        action = draw.choice(ACTIONS)
        outcome = action.__name__
        try:
            action(study, draw)
        except Exception as error:  # noqa: BLE001 - what comes first, ours or theirs, is a matter of chance
            outcome += f": {type(error).__name__}"
        counted[outcome] += 1
        with contextlib.suppress(OSError):
            beside = done.with_suffix(".new")
            beside.write_text(json.dumps(dict(sorted(counted.items()))))
            beside.replace(done)
        time.sleep(pause_s)
        left = None if left is None else left - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=0.25)
    parser.add_argument("--done", type=Path, required=True)
    options = parser.parse_args()
    interfere(
        os.environ["OPTUNA_STORAGE_OF_OURS"],
        options.study,
        seed=options.seed,
        pause_s=options.pause_s,
        done=options.done,
    )


if __name__ == "__main__":
    main()
