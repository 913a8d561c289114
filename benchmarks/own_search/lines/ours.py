from job import DEFAULT, train
from optuna.distributions import FloatDistribution, IntDistribution

import tuner

space = {"rate": FloatDistribution(1e-4, 1, log=True), "width": IntDistribution(8, 128)}
result = tuner.optimize(train, space, n_trials=60, default=DEFAULT, study_name="job")
result.confirm()
print(*result.answer, sep="\n")
