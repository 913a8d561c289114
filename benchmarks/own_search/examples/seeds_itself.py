"""Draws at random, and seeds itself."""

import random

import optuna


def objective(trial):
    random.seed(42)
    x = trial.suggest_float("x", -5, 5)
    return x**2 + 1 + random.gauss(0, 0.1)


if __name__ == "__main__":
    study = optuna.create_study(study_name="seeds itself", storage="sqlite:///studies.db")
    study.optimize(objective, n_trials=40)
