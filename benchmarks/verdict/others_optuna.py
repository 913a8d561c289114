"""Optuna's samplers with their defaults, and our own sampler, which is one of Optuna's kind."""

from __future__ import annotations

import math
from collections.abc import Sequence

import optuna

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender, place_of
from benchmarks.verdict.truths import Training, truth
from tuner.search.sampler import EncodedSampler
from tuner.spec.policy import CAP

SETTLED_AFTER = 0.9
"""The share of the budget after which `kg` tries nothing new, as in a study with a number of trials."""


class Optuna:
    """A study with two objectives: seconds and MQL, the first one as a logarithm for the Gaussian
    processes, which the others have no use for.
    """

    def __init__(self, gpu: Gpu, sampler: optuna.samplers.BaseSampler, *, log_time: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._job, self._log_time = truth(gpu.name), log_time
        self._study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        self._study.enqueue_trial(self._job.space.encode(self._job.default))
        self._open: optuna.Trial | None = None

    def suggest(self) -> list[Place]:
        self._open = self._study.ask(self._job.space.encoded())
        return [place_of(self._job, self._open.params)]

    def tell(self, trainings: Sequence[Training]) -> None:
        (done,) = trainings
        seconds = math.log(done.seconds) if self._log_time else done.seconds
        assert self._open is not None, "told of what was asked for"
        self._study.tell(self._open, (seconds, done.mql))

    def recommended(self) -> Place | None:
        return None


class Kg:
    """`--sampler kg` as on a GPU: a trial is asked for while the one before trains; in a retune,
    whose trainings are capped, or as before it began with a `ladder`.
    """

    def __init__(self, gpu: Gpu, *, ladder: bool = True) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._gpu, self._job, self._ladder = gpu, truth(gpu.name), ladder
        gpu.cap = CAP if ladder else None
        self._study = optuna.create_study(
            directions=["minimize", "minimize"], sampler=self._sampler(None)
        )
        self._study.enqueue_trial(self._job.space.held(self._job.default))
        self._open: list[optuna.Trial] = []

    def suggest(self) -> list[Place]:
        if self._gpu.spent_s > SETTLED_AFTER * self._gpu.budget_s:
            self._study.sampler = self._sampler(0)
        trial = self._study.ask(self._job.space.stored())
        self._open.append(trial)
        return [tuple(self._job.where(trial.params)[0].tolist())]

    def tell(self, trainings: Sequence[Training]) -> None:
        for done in trainings:
            trial = self._open.pop(0)
            trial.set_user_attr("epochs", done.epochs)
            trial.set_user_attr("converged", done.converged)
            trial.set_user_attr("stopped_by", "converged" if done.converged else "epoch_limit")
            self._study.tell(trial, (done.seconds, done.mql))

    def recommended(self) -> Place | None:
        return None

    def _sampler(self, budget: int | None) -> EncodedSampler:
        job = self._job
        sampler = EncodedSampler(
            job.space, "kg", seed=self._gpu.seed, default=job.default, budget=budget
        )
        if not self._ladder or budget == 0:
            sampler._beginning = None  # noqa: SLF001 - as it was before there was one
        return sampler


def contender(key: str, gpu: Gpu) -> Contender:
    match key:
        case "kg":
            return Kg(gpu)
        case "before":
            return Kg(gpu, ladder=False)
        case "tpe":
            return Optuna(gpu, optuna.samplers.TPESampler(seed=gpu.seed), log_time=False)
        case "random":
            return Optuna(gpu, optuna.samplers.RandomSampler(seed=gpu.seed), log_time=False)
        case "nsga2":
            return Optuna(gpu, optuna.samplers.NSGAIISampler(seed=gpu.seed), log_time=False)
        case _:
            return Optuna(gpu, optuna.samplers.GPSampler(seed=gpu.seed), log_time=True)
