"""What is confirmed one after the other, of surfaces that are known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tuner.verdict.confirmation_plan import LEAST_CHANCE, confirmation_steps
from tuner.verdict.known_runs import Run
from tuner.verdict.recommendation import recommend
from tuner.verdict.runs_model import RunsModel
from tuner.verdict.stats.noninferiority import no_worse

MARGIN = 0.01


def runs(seeds: int = 12) -> list[Run]:
    """The default, and 30 that are faster the farther they are from it, and worse beyond half."""
    random = np.random.default_rng(4)
    found = []
    for trial in range(31):
        x = trial / 30
        for _ in range(seeds):
            seconds = math.exp(-2 * x + 0.1 * random.standard_normal())
            mql = 0.8 + 0.03 * max(x - 0.3, 0.0) + 0.008 * random.standard_normal()
            found += [Run(trial=trial, where=(x, 0.5), seconds=seconds, mql=mql, epochs=40)]
    return found


@pytest.fixture(scope="module")
def model() -> RunsModel:
    return RunsModel(runs(), 0)


def test_the_surest_is_first_and_each_next_one_is_faster(model: RunsModel) -> None:
    steps = confirmation_steps(model, None, margin=MARGIN, most=4)
    assert len(steps) > 1
    assert all(one.seconds > next_.seconds for one, next_ in pairwise(steps))
    assert all(one.chance >= next_.chance for one, next_ in pairwise(steps))
    assert all(each.chance >= LEAST_CHANCE and each.trial != 0 for each in steps)
    assert len(confirmation_steps(model, None, margin=MARGIN, most=1)) == 1


def test_what_is_recommended_is_among_them(model: RunsModel) -> None:
    chosen = recommend(model).chosen
    assert chosen is not None
    for first in (chosen.trial, 5):
        steps = confirmation_steps(model, first, margin=MARGIN)
        assert first in {each.trial for each in steps}
    assert confirmation_steps(model, 5, margin=MARGIN, candidates={0, 5})[0].trial == 5


def test_nothing_is_tested_that_is_no_candidate(model: RunsModel) -> None:
    assert confirmation_steps(model, None, margin=MARGIN, candidates=()) == ()
    fewer = confirmation_steps(model, None, margin=MARGIN, candidates={3, 4})
    assert {each.trial for each in fewer} <= {3, 4}


def test_with_more_seeds_the_first_step_is_bolder(model: RunsModel) -> None:
    few, many = (confirmation_steps(model, None, margin=MARGIN, seeds=seeds) for seeds in (15, 240))
    assert many[0].seconds < few[0].seconds


def test_drawn_confirmations_claim_as_often_as_is_said(model: RunsModel) -> None:
    _, claims = model.drawn_confirmations(MARGIN, 60, 4000, 1)
    said = model.chance_to_confirm(MARGIN, 60)
    assert np.abs(claims.mean(axis=0)[1:] - said[1:]).max() < 0.03


def test_three_in_order_err_no_more_often_than_one() -> None:
    """All exactly at the margin: whichever is claimed, it is claimed wrongly."""
    random = np.random.default_rng(11)
    wrong = 0
    for _ in range(1500):
        default = 0.8 + 0.006 * random.standard_normal(60)
        for _step in range(3):
            mine = (1 + MARGIN) * 0.8 + 0.009 * random.standard_normal(60)
            found = no_worse(dict(enumerate(mine)), dict(enumerate(default)), margin=MARGIN)
            assert found is not None
            if not found.claimed:
                break
            wrong += _step == 0
    assert wrong / 1500 < 0.055


def test_at_anothers_quality_the_default_may_be_offered_and_the_surest_is_first(
    model: RunsModel,
) -> None:
    own = model.quality_of_default()
    assert own.mql == pytest.approx(0.8, abs=0.005)
    steps = confirmation_steps(model, None, margin=MARGIN, level=own)
    assert steps
    assert all(one.chance >= next_.chance for one, next_ in pairwise(steps))
    assert all(one.seconds > next_.seconds for one, next_ in pairwise(steps))
    assert confirmation_steps(model, None, margin=MARGIN, level=own, candidates={0})[0].trial == 0
    out_of_reach = replace(own, mql=0.7)
    assert confirmation_steps(model, None, margin=MARGIN, level=out_of_reach) == ()
