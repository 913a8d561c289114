"""An objective that is an object, with data of its own."""

import numpy as np
import optuna


class Objective:
    def __init__(self, rows):
        self.inputs = np.random.default_rng(0).normal(size=(rows, 5))
        self.targets = self.inputs @ np.array([1.0, -2.0, 0.5, 0.0, 0.0])

    def __call__(self, trial):
        ridge = trial.suggest_float("ridge", 1e-6, 1e3, log=True)
        chosen = np.random.choice(len(self.inputs), 40, replace=False)
        a = self.inputs[chosen]
        b = self.targets[chosen] + np.random.normal(0, 0.5, 40)
        weights = np.linalg.solve(a.T @ a + ridge * np.eye(5), a.T @ b)
        return float(np.mean((self.inputs @ weights - self.targets) ** 2)) + 0.2


objective = Objective(300)

if __name__ == "__main__":
    study = optuna.create_study(study_name="object", storage="sqlite:///studies.db")
    study.optimize(objective, n_trials=60)
