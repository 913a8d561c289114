"""One number, as in the first example of Optuna's documentation."""

import random

import optuna


def objective(trial):
    x = trial.suggest_float("x", -10, 10)
    return (x - 2) ** 2 + 1 + random.gauss(0, 0.05)


if __name__ == "__main__":
    study = optuna.create_study(study_name="simple", storage="sqlite:///studies.db")
    study.optimize(objective, n_trials=50)
