"""Ax's client with its defaults: what it models as noisy, as no errors are given.

Either two objectives, with 1.01 times the baseline's MQL and its time as their thresholds, or the
time alone under the constraint on MQL. The recommendation is by its model: the fastest of its predicted
front that is within the constraint, or its best configuration.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.exceptions.core import DataRequiredError, UnsupportedError

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender, place_of
from benchmarks.verdict.truths import Training, truth
from tuner.spec.margin import MARGIN
from tuner.spec.ranges import FloatRange
from tuner.spec.space import SearchSpace

TIME, QUALITY = "log_seconds", "mql"
BATCH = 8


def space_of(space: SearchSpace) -> list[RangeParameterConfig]:
    """The encoded space in Ax's words."""
    found = []
    for name, one in space.ranges.items():
        distribution = one.encoded()
        bounds = (distribution.low, distribution.high)  # type: ignore[attr-defined]
        if isinstance(one, FloatRange):
            scaling = "log" if one.scale == "log" else "linear"
            found.append(
                RangeParameterConfig(
                    name=name, bounds=bounds, parameter_type="float", scaling=scaling
                )
            )
        else:
            found.append(RangeParameterConfig(name=name, bounds=bounds, parameter_type="int"))
    return found


class AxClient:
    """Eight suggestions at a time, made while the eight before them train."""

    def __init__(self, gpu: Gpu, *, objectives: str) -> None:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        torch.manual_seed(gpu.seed)
        self._gpu, self._job = gpu, truth(gpu.name)
        self._objectives, self._two = objectives, "," in objectives
        self._client = Client(random_seed=gpu.seed)
        self._client.configure_experiment(parameters=space_of(self._job.space), name="search")
        default = dict(self._job.space.encode(self._job.default))
        self._default = default
        self._open: list[int] = [self._client.attach_baseline(parameters=default)]
        self._begun = self._configured = False

    def suggest(self) -> list[Place]:
        if not self._begun:
            self._begun = True
            return [self._gpu.default]
        if not self._configured:
            return []
        try:
            trials = self._client.get_next_trials(max_trials=BATCH)
        except DataRequiredError:
            return []
        self._open += trials
        return [place_of(self._job, params) for params in trials.values()]

    def tell(self, trainings: Sequence[Training]) -> None:
        if not self._configured:
            self._configure(trainings[0])
        for done in trainings:
            self._client.complete_trial(
                self._open.pop(0), raw_data={TIME: math.log(done.seconds), QUALITY: done.mql}
            )

    def _configure(self, default: Training) -> None:
        """With two objectives both need a threshold: where one has none, the Pareto front that Ax
        names is empty, whatever was tried.
        """
        constraints = [f"{QUALITY} <= {1 + MARGIN} * baseline"]
        if self._two:
            constraints.append(f"{TIME} <= {math.log(default.seconds):.6f}")
        self._client.configure_optimization(
            objective=self._objectives, outcome_constraints=constraints
        )
        self._configured = True

    def recommended(self) -> Place | None:
        try:
            if not self._two:
                params, *_ = self._client.get_best_parameterization(use_model_predictions=True)
                return place_of(self._job, params)
            front: list[Any] = self._client.get_pareto_frontier(use_model_predictions=True)
            (default,) = self._client.predict([self._default])
        except UnsupportedError as error:  # too few trials for a model
            print(f"Ax names nothing: {error}", file=sys.stderr)
            return None
        most = (1 + MARGIN) * default[QUALITY][0]
        within = [
            (outcome[TIME][0], place_of(self._job, params))
            for params, outcome, *_ in front
            if outcome[QUALITY][0] <= most and outcome[TIME][0] < default[TIME][0]
        ]
        return min(within)[1] if within else None


def contender(key: str, gpu: Gpu) -> Contender:
    return AxClient(gpu, objectives=f"-{TIME}, -{QUALITY}" if key == "ax" else f"-{TIME}")
