"""Intermediate values, and a pruner that reads them."""

import random

import optuna


def objective(trial):
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    loss = 1.0
    for epoch in range(10):
        loss *= 1 - min(0.3, 300 * rate * random.uniform(0.8, 1.2) / (1 + 1000 * rate))
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss + 0.1 + random.gauss(0, 0.003)


if __name__ == "__main__":
    study = optuna.create_study(
        study_name="pruned", storage="sqlite:///studies.db", pruner=optuna.pruners.MedianPruner()
    )
    study.optimize(objective, n_trials=60)
