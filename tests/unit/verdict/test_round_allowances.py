"""What a budget in time leaves for the rounds of a verification."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tuner.record import Recorded
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.round_allowances import ALLOWANCE, allowances, committed_s


def run(session: str, seconds: float | None, **plan: Any) -> Any:
    """A run of a round that knew of 20 trials, finished where it has seconds."""
    result = None
    if seconds is not None:
        result = SimpleNamespace(recorded=Recorded(total_s=seconds, converged=True))
    known = {"known_trials": {"s": 20}, "choice": "recommended"} | plan
    state = "waiting" if seconds is None else "finished"
    return SimpleNamespace(session=session, plan=known, result=result, state=state)


def study(*runs: Any) -> StudySnapshot:
    """A default that takes 3 s, and others that take 1 s."""
    records = [
        SimpleNamespace(
            converged=True,
            is_default=number == 0,
            recorded=Recorded(total_s=3.0 if not number else 1.0),
        )
        for number in range(20)
    ]
    results = SimpleNamespace(complete=records)
    definition = SimpleNamespace(keeps_last_block=False)
    found = SimpleNamespace(
        name="s", definition=definition, results=results, runs=tuple(runs), finished=20
    )
    return cast("StudySnapshot", found)


def test_what_is_left_is_shared_by_the_rounds_that_are_left() -> None:
    found = allowances({1: [study()], 2: [study()]}, 540.0, top=6, seeds=6)
    assert {number: each.device_s for number, each in found.items()} == {1: 90.0, 2: 90.0}
    # Six seeds of the default and of all six configurations take 54 s.
    assert {each.top for each in found.values()} == {6}
    after_one = study(run("a", 30.0))
    (left,) = allowances({1: [after_one]}, 90.0, top=6, seeds=6).values()
    assert left.device_s == 30.0  # of the 60 s that are left, for one of two rounds


def test_less_time_means_fewer_configurations_before_it_means_fewer_seeds() -> None:
    (found,) = allowances({1: [study()]}, 3 * 36.0, top=6, seeds=6).values()
    assert (found.device_s, found.top) == (36.0, 3)  # 36 s are six seeds of 3 s + 3 x 1 s
    (least,) = allowances({1: [study()]}, 3 * 5.0, top=6, seeds=6).values()
    assert least.top == 1


def test_what_is_not_enough_for_one_seed_is_not_begun() -> None:
    assert allowances({1: [study()]}, 3 * 3.9, top=6, seeds=6) == {}
    assert allowances({1: [study(run("a", 100.0))]}, 90.0, top=6, seeds=6) == {}


def test_no_round_follows_the_last_one() -> None:
    done = study(*(run(session, 1.0) for session in "abc"))
    assert allowances({1: [done]}, 1000.0, top=6, seeds=6) == {}


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([run("a", 2.0), run("a", 3.0)], 5.0),
        # One that is under way may still take all that it was promised.
        ([run("a", 2.0, **{ALLOWANCE: 9.0}), run("a", None, **{ALLOWANCE: 9.0})], 9.0),
        ([run("a", 2.0, **{ALLOWANCE: 9.0})], 2.0),
        ([run("a", 2.0, kind="confirmation"), run("b", 3.0)], 3.0),
    ],
)
def test_what_was_promised_is_not_given_twice(runs: list[Any], seconds: float) -> None:
    assert committed_s(runs) == seconds
