"""User attributes of the trial, and of the study, which the objective reads."""

import random

import optuna


def objective(trial):
    width = trial.suggest_int("width", 8, 256, log=True)
    scale = trial.study.user_attrs["scale"]
    error = scale * (0.2 + 2 / width) + random.gauss(0, 0.002)
    trial.set_user_attr("parameters", width * width)
    trial.set_user_attr("name", f"{trial.study.study_name} {trial.number}")
    return error


if __name__ == "__main__":
    study = optuna.create_study(study_name="attributes", storage="sqlite:///studies.db")
    study.set_user_attr("scale", 1.5)
    study.enqueue_trial({"width": 128})
    study.optimize(objective, n_trials=50)
