"""Two values: an error, and what it costs."""

import random

import optuna


def objective(trial):
    x = trial.suggest_float("x", 0, 5)
    y = trial.suggest_float("y", 0, 3)
    error = 1 + 0.05 * (x - 3) ** 2 + 0.05 * (y - 2) ** 2 + random.gauss(0, 0.01)
    return error, 5 + 4 * x + 4 * y + random.random()


if __name__ == "__main__":
    study = optuna.create_study(
        study_name="two", storage="sqlite:///studies.db", directions=["minimize", "minimize"]
    )
    study.enqueue_trial({"x": 3.0, "y": 2.0})
    study.optimize(objective, n_trials=80)
