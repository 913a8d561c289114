"""One call of a function: its clock, its seed, and how it ends."""

from __future__ import annotations

import random
import time
from typing import Any

import optuna

from tuner.worker.functions.called import COMPLETE, FAIL, CalledTrial, Order, called, current_seed

ORDER = Order(params={}, number=3, seed=7, directions=["MINIMIZE"], study={}, asks=True)
SLOW_S = 0.2


def test_seconds_leave_out_what_the_trial_waits_for_an_answer() -> None:
    def asks(question: str, *_: Any) -> float | bool:
        time.sleep(SLOW_S)
        return 0.5 if question == "suggest" else False

    def function(trial: CalledTrial) -> float:
        trial.report(trial.suggest_float("x", 0, 1), step=1)
        assert not trial.should_prune()
        assert trial.study.direction == optuna.study.StudyDirection.MINIMIZE
        trial.set_user_attr("seed", current_seed())
        return random.random()

    done = called(function, ORDER, asks)
    assert (done.state, done.attributes) == (COMPLETE, {"seed": 7})
    assert list(done.values) == [random.Random(7).random()]
    assert done.seconds is not None
    assert 0 <= done.seconds < SLOW_S
    ((step, value, elapsed_s),) = done.curve
    assert (step, value) == (1, 0.5)
    assert 0 <= elapsed_s < SLOW_S


def test_an_attribute_that_no_database_takes_is_refused_where_it_is_set() -> None:
    def function(trial: CalledTrial) -> float:
        trial.set_user_attr("what", object())
        return 1.0

    done = called(function, ORDER, lambda *_: None)
    assert done.state == FAIL
    assert "TypeError" in done.why
