from pathlib import Path

from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from job import DEFAULT, train
from scipy.stats import ttest_rel

rate = RangeParameterConfig("rate", (1e-4, 1.0), parameter_type="float", scaling="log")
width = RangeParameterConfig("width", (8, 128), parameter_type="int")
if Path("job.json").exists():
    client = Client.load_from_json_file("job.json")
else:
    client = Client()
    client.configure_experiment(parameters=[rate, width])
    client.configure_optimization(objective="-loss")
    index = client.attach_trial(DEFAULT)
    client.complete_trial(index, raw_data={"loss": train(DEFAULT, index)})
while len(client.summarize()) < 60:
    for index, params in client.get_next_trials(max_trials=1).items():
        client.complete_trial(index, raw_data={"loss": train(params, index)})
    client.save_to_json_file("job.json")
params = client.get_best_parameterization()[0]

seeds = range(1000, 1030)
best = [train(params, seed) for seed in seeds]
default = [train(DEFAULT, seed) for seed in seeds]
found = ttest_rel(best, default, alternative="less")
print(params, sum(best) / 30, sum(default) / 30, found.pvalue)
