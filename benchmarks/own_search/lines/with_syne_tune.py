import random

from job import DEFAULT, train
from scipy.stats import ttest_rel
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import PythonBackend
from syne_tune.config_space import loguniform, randint
from syne_tune.experiments import load_experiment
from syne_tune.optimizer.baselines import BORE


def objective(rate, width):
    from syne_tune import Reporter

    loss = train({"rate": rate, "width": width}, random.randrange(2**31))
    Reporter()(loss=loss)


space = {"rate": loguniform(1e-4, 1), "width": randint(8, 128)}
backend = PythonBackend(tune_function=objective, config_space=space)
scheduler = BORE(space, metric="loss", do_minimize=True, points_to_evaluate=[DEFAULT])
stop = StoppingCriterion(max_num_trials_finished=60)
tuner = Tuner(trial_backend=backend, scheduler=scheduler, stop_criterion=stop, n_workers=1)
tuner.run()
found = load_experiment(tuner.name).best_config()
params = {name: found[f"config_{name}"] for name in space}

seeds = range(1000, 1030)
best = [train(params, seed) for seed in seeds]
default = [train(DEFAULT, seed) for seed in seeds]
test = ttest_rel(best, default, alternative="less")
print(params, sum(best) / 30, sum(default) / 30, test.pvalue)
