import random

import wandb
from job import DEFAULT, train
from scipy.stats import ttest_rel


def objective():
    with wandb.init() as run:
        run.log({"loss": train(dict(run.config), random.randrange(2**31))})


rate = {"distribution": "log_uniform_values", "min": 1e-4, "max": 1}
parameters = {"rate": rate, "width": {"distribution": "int_uniform", "min": 8, "max": 128}}
metric = {"name": "loss", "goal": "minimize"}
sweep = wandb.sweep({"method": "bayes", "metric": metric, "parameters": parameters}, project="job")
wandb.agent(sweep, objective, count=60, project="job")
params = dict(wandb.Api().sweep(f"job/{sweep}").best_run().config)

seeds = range(1000, 1030)
best = [train(params, seed) for seed in seeds]
default = [train(DEFAULT, seed) for seed in seeds]
found = ttest_rel(best, default, alternative="less")
print(params, sum(best) / 30, sum(default) / 30, found.pvalue)
