"""What a retune keeps, what it changes, and what cannot change any more."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.errors import UsageError
from tuner.spec.margin import CONFIRMATION_SEEDS
from tuner.spec.policy import Registered, agreed

WAS = Registered(against="original", searches=3, trials=100, margin=0.02, together=2)


def now(
    there: Registered | None, begun: bool = False, **said: object
) -> tuple[Registered, list[str]]:
    return agreed("etth-rmsnorm", there, Registered(), Registered(**said), begun=begun)


@pytest.mark.parametrize(
    ("said", "searches", "trials", "budget_s"),
    [
        ({}, 5, 320, None),
        ({"searches": 2, "trials": 30}, 2, 30, None),
        # A budget alone ends the search; with both, whichever is first.
        ({"budget_s": 60.0}, 5, None, 60.0),
        ({"budget_s": 60.0, "trials": 30}, 5, 30, 60.0),
    ],
)
def test_a_new_one_is_what_was_said_or_usual(
    said: dict[str, Any], searches: int, trials: int | None, budget_s: float | None
) -> None:
    found, lines = now(None, **said)
    assert (found.searches, found.trials, found.budget_s) == (searches, trials, budget_s)
    assert lines == []


def test_what_is_not_said_stays_and_a_line_tells_what_is_not_usual() -> None:
    found, lines = now(WAS)
    assert found == WAS
    assert lines == [
        "the retune of etth-rmsnorm keeps --against original --searches 3 --trials 100 --margin 2%"
    ]


def test_the_same_command_again_changes_nothing_and_says_nothing() -> None:
    said = {"against": "original", "searches": 3, "trials": 100, "margin": 0.02}
    for begun in (False, True):
        assert now(WAS, begun, **said) == (WAS, [])


def test_another_setting_is_told_until_the_confirmation_has_begun() -> None:
    found, lines = now(WAS, trials=150, against="original", searches=3, margin=0.02)
    assert found.trials == 150
    assert lines == ["the retune of etth-rmsnorm changes from --trials 100 to --trials 150"]
    with pytest.raises(UsageError, match=r"registered with --trials 100, and keeps that: its conf"):
        now(WAS, begun=True, trials=150)
    with pytest.raises(UsageError, match=r"leave out --margin 1%"):
        now(WAS, begun=True, margin=0.01)
    with pytest.raises(UsageError, match=r"leave out --against layernorm"):
        now(WAS, begun=True, against="layernorm")


def test_a_budget_that_is_said_later_leaves_the_trials_as_they_are() -> None:
    found, lines = now(Registered(trials=100), budget_s=60.0)
    assert (found.trials, found.budget_s) == (100, 60.0)
    assert lines[0] == "the retune of etth-rmsnorm changes from --budget none to --budget 60s"


def test_a_budget_stays_shared_as_it_was() -> None:
    was = Registered(searches=2, trials=None, budget_s=60.0)
    assert now(was, budget_s=90.0)[0].budget_s == 90.0
    for said in ({"searches": 3}, {"against": "original"}):
        with pytest.raises(UsageError, match="its budget was shared by what there was"):
            now(was, **said)


def test_a_finished_one_is_finished_until_something_changes() -> None:
    was = Registered(finished=True)
    assert now(was)[0].finished
    assert not now(was, trials=300)[0].finished


def test_the_seeds_of_its_confirmation_are_kept_and_fixed_once_it_has_begun() -> None:
    first, _ = now(None, confirm_seeds=30)
    assert first.confirm_seeds == 30
    assert now(first) == (first, ["the retune of etth-rmsnorm keeps --confirm-seeds 30"])
    assert now(first, confirm_seeds=40)[0].confirm_seeds == 40
    assert now(first, begun=True, confirm_seeds=30)[0] == first
    with pytest.raises(UsageError, match="registered with --confirm-seeds 30, and keeps that"):
        now(first, begun=True, confirm_seeds=40)


def test_the_usual_seeds_are_registered_as_well_and_refused_where_others_are_said() -> None:
    plain = now(None)[0].model_dump(mode="json")
    stored = Registered.model_validate(plain, strict=True)
    assert stored.confirm_seeds == CONFIRMATION_SEEDS
    with pytest.raises(UsageError, match=f"registered with --confirm-seeds {CONFIRMATION_SEEDS}"):
        now(stored, begun=True, confirm_seeds=30)
