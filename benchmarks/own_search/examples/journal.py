"""Kept in a journal file."""

import random

import optuna
from optuna.storages.journal import JournalFileBackend


def objective(trial):
    dropout = trial.suggest_float("dropout", 0.0, 0.6, step=0.1)
    layers = trial.suggest_int("layers", 1, 4)
    activation = trial.suggest_categorical("activation", ["relu", "tanh", "gelu"])
    loss = 0.4 + (dropout - 0.2) ** 2 + 0.01 * abs(layers - 2) + 0.02 * (activation == "tanh")
    return loss + random.gauss(0, 0.004)


if __name__ == "__main__":
    storage = optuna.storages.JournalStorage(JournalFileBackend("journal.log"))
    study = optuna.create_study(study_name="journal", storage=storage)
    study.optimize(objective, n_trials=60)
