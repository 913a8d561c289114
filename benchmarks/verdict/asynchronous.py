"""Workers that ask at the same time: a simulated search in which each asks when its last trial ended."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field

import numpy as np
import optuna

from benchmarks.verdict.budgets import BESIDE_S, Gpu, Place
from benchmarks.verdict.truths import Training, truth
from tuner.search.sampler import EncodedSampler


@dataclass(slots=True)
class Asynchronous:
    """A study of `trials` by `workers`, the default configuration first. A suggestion takes no
    simulated time; a trial takes its own seconds and what is beside them.

    `gpu` keeps what was trained, in the order of the asks; its budget is not looked at.
    """

    gpu: Gpu
    workers: int
    trials: int
    sampler: str = "kg"
    took_s: float = 0.0
    """Until the last trial ended, as the workers' clocks go."""
    ask_s: list[float] = field(default_factory=list)
    """What each suggestion took, seconds of one core."""
    blind: int = 0
    """Asks before the model could be asked: too few trials had ended, or none of the default."""
    doubled: int = 0
    """Asks that gave what some worker was training at that moment, and nobody had finished yet."""

    def run(self) -> None:
        """All trials to their end."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        job = truth(self.gpu.name)
        sampler = EncodedSampler(
            job.space,
            self.sampler,
            seed=self.gpu.seed,
            default=job.default,
            budget=self.trials,
        )
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        study.enqueue_trial(job.space.held(job.default))
        open_trials: list[tuple[float, int, optuna.Trial, Place, Training]] = []
        finished: set[Place] = set()
        for number in range(self.trials):
            if len(open_trials) == self.workers:
                self._end_one(study, open_trials, finished)
            began = time.process_time()
            trial = study.ask(job.space.stored())
            self.ask_s.append(time.process_time() - began)
            where: Place = tuple(job.where(trial.params)[0].tolist())
            training_now = {each[3] for each in open_trials}
            self.doubled += where in training_now and where not in finished
            self.blind += self.gpu.default not in finished or number - len(open_trials) < 12
            training = self.gpu.train(where)
            ends = self.took_s + training.seconds + BESIDE_S
            heapq.heappush(open_trials, (ends, number, trial, where, training))
        while open_trials:
            self._end_one(study, open_trials, finished)

    def _end_one(
        self,
        study: optuna.Study,
        open_trials: list[tuple[float, int, optuna.Trial, Place, Training]],
        finished: set[Place],
    ) -> None:
        """The trial that ends first; time goes on until then."""
        self.took_s, _, trial, where, ended = heapq.heappop(open_trials)
        finished.add(where)
        trial.set_user_attr("epochs", ended.epochs)
        trial.set_user_attr("converged", ended.converged)
        trial.set_user_attr("stopped_by", "converged" if ended.converged else "epoch_limit")
        study.tell(trial, (ended.seconds, ended.mql))

    def late_ask_s(self, last: int = 50) -> float:
        """The median of the last suggestions."""
        return float(np.median(self.ask_s[-last:]))
