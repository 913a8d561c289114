"""Spends a GPU's seconds as the product's samplers do, a run at a time."""

from __future__ import annotations

import time

import numpy as np
import optuna

from benchmarks.verdict.budgets import Gpu
from benchmarks.verdict.truths import truth
from tuner.search.next_run import Known, NextRun
from tuner.search.next_run_model import fitted_until
from tuner.search.past_runs import PastRun
from tuner.search.sampler import EncodedSampler
from tuner.spec.margin import MARGIN


class Searched:
    """A study of a sampler, the default configuration first; `ask_s` is what each suggestion took."""

    def __init__(self, gpu: Gpu, sampler: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._gpu, self._job = gpu, truth(gpu.name)
        asked = EncodedSampler(self._job.space, sampler, seed=gpu.seed, default=self._job.default)
        self._study = optuna.create_study(directions=["minimize", "minimize"], sampler=asked)
        self._study.enqueue_trial(self._job.default)
        self.ask_s: list[float] = []

    def spend(self) -> None:
        """Until nothing is left."""
        while self._gpu.left_s > 0:
            began = time.process_time()
            trial = self._study.ask(self._job.space.stored())
            self.ask_s.append(time.process_time() - began)
            ended = self._gpu.train(tuple(self._job.where(trial.params)[0].tolist()))
            trial.set_user_attr("epochs", ended.epochs)
            trial.set_user_attr("converged", ended.converged)
            if not ended.converged:
                trial.set_user_attr("stopped_by", "epoch_limit")
            self._study.tell(trial, (ended.seconds, ended.mql))


class NextSeeds:
    """Only more seeds of what ran already."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._random = gpu, np.random.default_rng([gpu.seed, 5])
        self._decides = NextRun(truth(gpu.name).space, margin=MARGIN)

    def spend(self) -> None:
        """Until nothing is left."""
        while self._gpu.left_s > 0:
            past = [
                PastRun(
                    where=where,
                    seconds=t.seconds,
                    mql=t.mql,
                    epochs=t.epochs,
                    converged=t.converged,
                )
                for where, t in self._gpu.trained
            ]
            fit = past[: fitted_until(len(past))]
            known = Known(past=past, fit=fit, default=self._gpu.default)
            self._gpu.train(self._decides.place(known, self._random, new=False))
