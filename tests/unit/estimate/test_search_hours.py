"""Seconds of devices of a whole search."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tuner.estimate.cost_model import Foretold
from tuner.estimate.foretold import (
    EARLY,
    EARLY_TIMES,
    FIRST_S,
    MORE_THAN_USUAL,
    Ended,
    beside_training,
    search_seconds,
    trials_bought,
)
from tuner.estimate.work_ahead import WorkAhead

AHEAD = WorkAhead(log_seconds=3.0, spread=0.2, searches=9)


def test_what_was_spent_is_certain_and_what_is_ahead_is_not() -> None:
    ended = [Ended(trained_s=1.0, held_s=1.2)] * 10
    found = search_seconds(AHEAD, ended, trials=20, measured_s=0.2)
    assert found.low > 12.0
    # Nine of the ten were early ones, and took as much beside training as twice the usual does.
    usual_s = MORE_THAN_USUAL * (5 * 0.2 + 9 * 0.2 / EARLY_TIMES) / 14
    assert found.middle == pytest.approx(12.0 + AHEAD.seconds.middle + 10 * usual_s)
    assert found.low < found.middle < found.high
    full = search_seconds(None, ended, trials=10, measured_s=0.2)
    assert full.low == full.high == pytest.approx(12.0)


def test_device_time_buys_as_many_trials_as_the_recorded_ones_had_in_it() -> None:
    """Twenty slow trials, then quick ones; the second course is twice as slow as the first."""
    course = np.concatenate([np.full(20, 3.0), np.full(380, 0.5)])
    ahead = dataclasses.replace(
        AHEAD, log_seconds=math.log(course.sum() * math.sqrt(2)), courses=(course, 2 * course)
    )
    found = trials_bought(ahead, (), measured_s=0.0, within_s=FIRST_S + 120.2)
    assert found.low < found.middle < found.high
    alone = dataclasses.replace(ahead, log_seconds=math.log(course.sum()), courses=(course,))
    # 60 s for the first twenty, 120 of half a second, and the one that is under way then.
    assert trials_bought(alone, (), measured_s=0.0, within_s=FIRST_S + 120.2).middle == 141
    ended = [Ended(trained_s=3.0, held_s=3.0)] * 20
    later = dataclasses.replace(alone, log_seconds=math.log(190.0), courses=(course[20:],))
    assert trials_bought(later, ended, measured_s=0.0, within_s=120.2).middle == 141
    beside_s = beside_training(0.5, [0.0] * 20).middle
    assert beside_s > 0.05
    slower = trials_bought(later, ended, measured_s=0.5, within_s=120.2)
    assert slower.middle == pytest.approx(21 + 60.2 / (0.5 + beside_s), abs=1)


def test_a_compiler_takes_its_part_of_the_time_first() -> None:
    course = np.full(100, 1.0)
    ahead = dataclasses.replace(AHEAD, log_seconds=math.log(100.0), courses=(course,))
    once = Foretold(middle=20.0, low=10.0, high=30.0)
    found = trials_bought(ahead, (), measured_s=0.0, within_s=FIRST_S + 50.5, once=once)
    plain = trials_bought(ahead, (), measured_s=0.0, within_s=FIRST_S + 50.5)
    assert (plain.middle, found.middle) == (51, 31)
    assert found.low < 31 < found.high


@pytest.mark.parametrize(("within_s", "trials"), [(0.1, 1), (1000.0, 100)])
def test_a_search_makes_one_trial_at_least_and_no_more_than_it_may(
    within_s: float, trials: int
) -> None:
    ahead = dataclasses.replace(AHEAD, log_seconds=math.log(100.0), courses=(np.full(100, 1.0),))
    found = trials_bought(ahead, (), measured_s=0.0, within_s=within_s)
    assert found.middle == trials
    assert found.high <= 100


def test_when_long_trials_come_is_part_of_how_many_there_will_be() -> None:
    """Two courses of the same seconds: in a short time they differ by a factor of ten."""
    first, last = np.r_[np.full(10, 10.0), np.full(90, 1.0)], np.r_[np.full(90, 1.0), [10.0] * 10]
    ahead = dataclasses.replace(AHEAD, log_seconds=math.log(190.0), courses=(first, last))
    short = trials_bought(ahead, (), measured_s=0.0, within_s=40.5)
    whole = trials_bought(ahead, (), measured_s=0.0, within_s=185.0)
    assert short.low < 10
    assert short.high > 30
    assert short.ratio > 2 * whole.ratio


def test_the_first_trial_of_a_device_tells_nothing_of_the_others() -> None:
    early = [EARLY_TIMES * 0.1] * (EARLY - 1)
    with_first = beside_training(0.1, [30.0, *early, *[0.1] * 20])
    assert with_first.middle == pytest.approx(MORE_THAN_USUAL * 0.1)
    assert beside_training(0.1, ()).ratio > with_first.ratio


def test_the_first_trials_take_more_beside_training_and_the_first_one_most() -> None:
    course = np.full(100, 0.1)
    ahead = dataclasses.replace(AHEAD, log_seconds=math.log(10.0), courses=(course,))
    fresh = search_seconds(ahead, (), trials=100, measured_s=1.0).middle
    usual_s = MORE_THAN_USUAL * (100 + EARLY * (EARLY_TIMES - 1))
    assert fresh == pytest.approx(10.0 + FIRST_S + usual_s)
    assert trials_bought(ahead, (), measured_s=1.0, within_s=2.0).middle == 1
    ended = [Ended(trained_s=0.1, held_s=1.1)] * EARLY
    later = dataclasses.replace(ahead, courses=(course[EARLY:],))
    seen = search_seconds(later, ended, trials=100, measured_s=1.0).middle
    assert seen < fresh
