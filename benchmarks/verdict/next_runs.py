"""Spends a GPU's seconds as the product's samplers do, a run at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import optuna

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.truths import Training, truth
from tuner.search.sampler import EncodedSampler


class Searched:
    """A study of a sampler, the default configuration first; `ask_s` is what each suggestion took,
    seconds of one core.
    """

    def __init__(
        self,
        gpu: Gpu,
        sampler: str,
        *,
        settled_after: float = 1.0,
        ahead: bool = False,
        first: Sequence[Place] = (),
        trials: int | None = None,
    ) -> None:
        """After the share `settled_after` of the seconds it is at the end of its budget of trials;
        `ahead`: a trial is asked for while the one before trains, as on a GPU; `first`: where it
        begins, after the default; `trials`: so many at most, which the sampler knows.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._gpu, self._job, self._sampler = gpu, truth(gpu.name), sampler
        self._settled_after, self._ahead = settled_after, ahead
        self._trials = math.inf if trials is None else trials
        self._study = optuna.create_study(
            directions=["minimize", "minimize"], sampler=self._made(trials)
        )
        space = self._job.space
        self._study.enqueue_trial(space.held(self._job.default))
        for where in first:
            self._study.enqueue_trial(space.held(space.at(where)), skip_if_exists=True)
        self._untold: list[tuple[optuna.Trial, Training]] = []
        self.ask_s: list[float] = []

    def spend(self) -> None:
        """Until nothing is left."""
        while self._gpu.left_s > 0 and len(self._gpu.trained) < self._trials:
            if self._gpu.spent_s > self._settled_after * self._gpu.budget_s:
                self._study.sampler = self._made(0)
            began = time.process_time()
            trial = self._study.ask(self._job.space.stored())
            self.ask_s.append(time.process_time() - began)
            while self._untold:
                self._tell(*self._untold.pop())
            ended = self._gpu.train(tuple(self._job.where(trial.params)[0].tolist()))
            if self._ahead:
                self._untold.append((trial, ended))
            else:
                self._tell(trial, ended)

    def _made(self, budget: int | None) -> EncodedSampler:
        job, seed = self._job, self._gpu.seed
        return EncodedSampler(
            job.space, self._sampler, seed=seed, default=job.default, budget=budget
        )

    def _tell(self, trial: optuna.Trial, ended: Training) -> None:
        trial.set_user_attr("epochs", ended.epochs)
        trial.set_user_attr("converged", ended.converged)
        trial.set_user_attr("stopped_by", "converged" if ended.converged else "epoch_limit")
        self._study.tell(trial, (ended.seconds, ended.mql))
