"""Syne Tune's multi-objective regularised evolution, driven by its own objects for a loop of one's
own.

Its EHVI is not here: Syne Tune 0.16.0 with BoTorch 0.18.1 ends at the first suggestion of its model
with "expected scalar type Double but found Float".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from syne_tune.config_space import loguniform, randint, uniform
from syne_tune.optimizer.schedulers.ask_tell_scheduler import AskTellScheduler
from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution
from syne_tune.optimizer.schedulers.single_fidelity_scheduler import SingleFidelityScheduler

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender, place_of
from benchmarks.verdict.truths import Training, truth
from tuner.spec.ranges import FloatRange
from tuner.spec.space import SearchSpace

METRICS = ["seconds", "mql"]


def space_of(space: SearchSpace) -> dict[str, Any]:
    """The encoded space in Syne Tune's words."""
    found: dict[str, Any] = {}
    for name, one in space.ranges.items():
        distribution = one.encoded()
        low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
        if not isinstance(one, FloatRange):
            found[name] = randint(low, high)
        else:
            found[name] = (loguniform if one.scale == "log" else uniform)(low, high)
    return found


class SyneTune:
    """Two metrics: seconds and MQL."""

    def __init__(self, gpu: Gpu) -> None:
        # Its random configurations are drawn from there.
        np.random.seed(gpu.seed)  # noqa: NPY002
        self._job = truth(gpu.name)
        space = space_of(self._job.space)
        first = [dict(self._job.space.encode(self._job.default))]
        searcher = MultiObjectiveRegularizedEvolution(
            space, points_to_evaluate=first, random_seed=gpu.seed
        )
        scheduler = SingleFidelityScheduler(
            space, metrics=METRICS, searcher=searcher, random_seed=gpu.seed
        )
        self._loop = AskTellScheduler(base_scheduler=scheduler)
        self._open: Any = None

    def suggest(self) -> list[Place]:
        self._open = self._loop.ask()
        return [place_of(self._job, self._open.config)]

    def tell(self, trainings: Sequence[Training]) -> None:
        (done,) = trainings
        self._loop.tell(self._open, {METRICS[0]: done.seconds, METRICS[1]: done.mql})

    def recommended(self) -> Place | None:
        return None


def contender(key: str, gpu: Gpu) -> Contender:
    assert key == "morea", "there is one of it"
    return SyneTune(gpu)
