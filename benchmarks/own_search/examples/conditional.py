"""A choice decides which parameters there are; maximised, as an accuracy is."""

import numpy as np
import optuna


def objective(trial):
    classifier = trial.suggest_categorical("classifier", ["SVC", "RandomForest"])
    rng = np.random.default_rng(np.random.randint(2**31))
    if classifier == "SVC":
        c = trial.suggest_float("svc_c", 1e-4, 1e4, log=True)
        accuracy = 0.95 - 0.004 * abs(np.log10(c) - 1) ** 2
    else:
        depth = trial.suggest_int("rf_max_depth", 2, 32, log=True)
        trees = trial.suggest_int("rf_trees", 10, 200, step=10)
        accuracy = 0.94 - 0.02 / depth - 0.1 / trees
    return float(accuracy + rng.normal(0, 0.005))


if __name__ == "__main__":
    study = optuna.create_study(
        study_name="conditional", storage="sqlite:///studies.db", direction="maximize"
    )
    study.optimize(objective, n_trials=60)
