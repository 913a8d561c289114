import random

from job import DEFAULT, train
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from scipy.stats import ttest_rel


def objective(config):
    tune.report({"loss": train(config, random.randrange(2**31))})


space = {"rate": tune.loguniform(1e-4, 1), "width": tune.randint(8, 129)}
search = OptunaSearch(points_to_evaluate=[DEFAULT])
config = tune.TuneConfig(metric="loss", mode="min", num_samples=60, search_alg=search)
tuner = tune.Tuner(objective, param_space=space, tune_config=config)
params = tuner.fit().get_best_result().config

seeds = range(1000, 1030)
best = [train(params, seed) for seed in seeds]
default = [train(DEFAULT, seed) for seed in seeds]
found = ttest_rel(best, default, alternative="less")
print(params, sum(best) / 30, sum(default) / 30, found.pvalue)
