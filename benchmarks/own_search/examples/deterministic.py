"""Nothing is drawn at random."""

import optuna


def objective(trial):
    x = trial.suggest_float("x", -5, 5)
    return x**2 + 1


if __name__ == "__main__":
    study = optuna.create_study(study_name="deterministic", storage="sqlite:///studies.db")
    study.optimize(objective, n_trials=40)
