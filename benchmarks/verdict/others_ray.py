"""Ray Tune's searcher object, without its processes.

`OptunaSearch` takes two metrics. `Repeater` averages one metric over the runs of a configuration and
fails with two, so it gets the scalarised one. Tune asks for a trial while another trains, so these
are told late, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from ray import tune
from ray.tune.search import Repeater, Searcher
from ray.tune.search.optuna import OptunaSearch

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender, place_of
from benchmarks.verdict.others_rules import scalarised
from benchmarks.verdict.truths import Training, truth
from tuner.spec.margin import LEAST_RUNS
from tuner.spec.ranges import FloatRange
from tuner.spec.space import SearchSpace

TIME, QUALITY, SCORE = "seconds", "mql", "score"


def space_of(space: SearchSpace) -> dict[str, object]:
    """The encoded space in Tune's words."""
    found: dict[str, object] = {}
    for name, one in space.ranges.items():
        distribution = one.encoded()
        low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
        if not isinstance(one, FloatRange):
            found[name] = tune.randint(low, high + 1)
        elif one.scale == "log":
            found[name] = tune.loguniform(low, high)
        else:
            found[name] = tune.uniform(low, high)
    return found


class RayTune:
    def __init__(self, gpu: Gpu, *, repeats: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._job = truth(gpu.name)
        two = repeats == 1
        search = OptunaSearch(
            OptunaSearch.convert_search_space(space_of(self._job.space)),
            metric=[TIME, QUALITY] if two else SCORE,
            mode=["min", "min"] if two else "min",
            points_to_evaluate=[dict(self._job.space.encode(self._job.default))],
            seed=gpu.seed,
        )
        self._search: Searcher = search if two else Repeater(search, repeat=repeats)
        self._places: list[Place] = []
        self._told = 0
        self._of_default: list[float] = []
        self._default = gpu.default

    def suggest(self) -> list[Place]:
        config = self._search.suggest(str(len(self._places)))
        self._places.append(place_of(self._job, config))
        return self._places[-1:]

    def tell(self, trainings: Sequence[Training]) -> None:
        for done in trainings:
            if self._places[self._told] == self._default:
                self._of_default.append(done.mql)
            quality = sum(self._of_default) / len(self._of_default)
            score = scalarised(done, quality)
            result = {TIME: done.seconds, QUALITY: done.mql, SCORE: score}
            self._search.on_trial_complete(str(self._told), result=result)
            self._told += 1

    def recommended(self) -> Place | None:
        return None


def contender(key: str, gpu: Gpu) -> Contender:
    return RayTune(gpu, repeats=LEAST_RUNS if key == "repeater" else 1)
