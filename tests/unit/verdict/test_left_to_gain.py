"""How much more runs would still change."""

import math

import numpy as np
import pytest

from tuner.verdict.known_runs import Run
from tuner.verdict.left_to_gain import left_to_gain
from tuner.verdict.recommendation import recommend
from tuner.verdict.runs_model import RunsModel


def runs_of(seeds: int) -> list[Run]:
    """The default, ten that are as good and up to three times as fast, and some that are worse."""
    random = np.random.default_rng(3)
    found = []
    for trial in range(20):
        x = trial / 19
        mql = 0.8 + 0.05 * max(x - 0.5, 0.0)
        found += [
            Run(
                trial=trial,
                where=(x, 0.5),
                seconds=math.exp(-2.2 * x + 0.1 * random.standard_normal()),
                mql=mql + 0.008 * random.standard_normal(),
                epochs=40,
            )
            for _ in range(seeds)
        ]
    return found


def test_the_more_runs_the_less_is_left() -> None:
    left = []
    for seeds in (10, 100, 1000):
        model = RunsModel(runs_of(seeds), 0)
        chosen = recommend(model, chance=0.5).chosen
        assert chosen is not None
        left.append(left_to_gain(model, chosen.trial))
    assert left[0].expected > left[1].expected > left[2].expected
    assert left[2].at_most < 0.1
    assert all(0 <= each.expected <= each.at_most < 1 for each in left)


def test_where_the_default_stands_all_is_left_that_something_may_be_worth() -> None:
    model = RunsModel(runs_of(10), 0)
    chosen = recommend(model, chance=0.5).chosen
    assert chosen is not None
    assert left_to_gain(model, None).expected > left_to_gain(model, chosen.trial).expected
    assert left_to_gain(model, None, candidates=()).at_most == 0.0


def test_without_the_default_nothing_is_said() -> None:
    with pytest.raises(ValueError, match="default"):
        left_to_gain(RunsModel(runs_of(3)[3:], 0), None)
