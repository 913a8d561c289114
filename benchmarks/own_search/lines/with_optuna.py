import optuna
from job import DEFAULT, train
from scipy.stats import ttest_rel


def objective(trial):
    rate = trial.suggest_float("rate", 1e-4, 1, log=True)
    return train({"rate": rate, "width": trial.suggest_int("width", 8, 128)}, trial.number)


study = optuna.create_study(study_name="job", storage="sqlite:///job.db", load_if_exists=True)
study.enqueue_trial(DEFAULT, skip_if_exists=True)
study.optimize(objective, n_trials=60 - len(study.trials))

seeds = range(1000, 1030)
best = [train(study.best_params, seed) for seed in seeds]
default = [train(DEFAULT, seed) for seed in seeds]
found = ttest_rel(best, default, alternative="less")
print(study.best_params, sum(best) / 30, sum(default) / 30, found.pvalue)
