"""A script that searches as soon as it runs, without a main guard; a thousand trials."""

import random

import optuna


def objective(trial):
    rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    batch = trial.suggest_categorical("batch", [32, 64, 128])
    return 0.5 + 3 * (rate - 0.01) ** 2 + 0.01 * (batch == 32) + random.gauss(0, 0.005)


optuna.logging.set_verbosity(optuna.logging.WARNING)
sampler = optuna.samplers.RandomSampler(seed=1)
study = optuna.create_study(
    study_name="thousand", storage="sqlite:///studies.db", sampler=sampler, load_if_exists=True
)
study.enqueue_trial({"rate": 0.001, "batch": 64})
study.optimize(objective, n_trials=1000)
