"""The stages of a retune: as requests to the ordinary operations, and as lines."""

from __future__ import annotations

import dataclasses

import pytest

from tuner.launch.request import DeviceChoice
from tuner.launch.retune_agreement import (
    MOST_TRIALS,
    Agreement,
    Searched,
    confirmation_request,
    reevaluation_request,
    search_request,
)
from tuner.launch.retune_request import RetuneRequest, Stage, Standing
from tuner.spec.policy import CAP, Registered

ASKED = RetuneRequest(variant="rmsnorm", against="original", devices=DeviceChoice(cpu=True))


def agreed(
    *,
    reference: bool = True,
    begun: bool = False,
    together: int = 2,
    repeats: bool = False,
    **registered: object,
) -> Agreement:
    """Of rmsnorm against original, whose confirmation may have `begun`."""
    other = Searched(word="original", group="etth-original", begun=begun) if reference else None
    return Agreement(
        registered=Registered(together=together, **registered),
        before=None,
        variant=Searched(word="rmsnorm", group="etth-rmsnorm", begun=False),
        reference=other,
        repeats=repeats,
    )


def test_searches_of_both_share_the_budget_equally() -> None:
    now = agreed(budget_s=1000.0, trials=None, searches=5)
    found = search_request(ASKED, now, 60.0)
    assert found.variants == ["original", "rmsnorm"]
    assert found.policy.search_s == pytest.approx(600.0 / 10)
    assert (found.trials, found.searches, found.timeout_s) == (MOST_TRIALS, 5, 60.0)
    alone = agreed(budget_s=1000.0, trials=None, searches=5, repeats=True)
    assert alone.share_s == pytest.approx(1000.0 / 10), "nothing is kept for a re-evaluation"
    without = search_request(ASKED, agreed(trials=30), None)
    assert (without.policy.said(), without.trials) == (
        {"cap": CAP, "against": "etth-original"},
        30,
    )
    going_on = dataclasses.replace(agreed(trials=30), before=Registered())
    assert search_request(ASKED, going_on, None).policy.said() == {}, "as it began"


def test_a_reference_that_was_confirmed_before_is_left_as_it_is() -> None:
    now = agreed(begun=True, together=1, budget_s=1000.0, trials=None, searches=5)
    assert search_request(ASKED, now, None).variants == ["rmsnorm"]
    assert now.share_s == pytest.approx(600.0 / 5)
    runs = reevaluation_request(ASKED, now, None, budget_s=400.0)
    assert (runs.studies, runs.budget_s, runs.confirm) == ("group:etth-rmsnorm", 400.0, False)
    found = confirmation_request(ASKED, now, None)
    assert (found.studies, found.against) == ("group:etth-rmsnorm", "group:etth-original")
    assert now.groups == ("etth-original", "etth-rmsnorm")
    assert now.own_groups == ("etth-rmsnorm",)


def test_a_confirmation_is_of_both_with_the_reference_first() -> None:
    found = confirmation_request(ASKED, agreed(margin=0.02), None)
    assert found.studies == "group:etth-original,group:etth-rmsnorm"
    assert (found.against, found.confirm, found.margin) == (None, True, 0.02)


def test_a_variant_alone_is_held_against_its_default() -> None:
    now = agreed(reference=False, together=1)
    assert search_request(ASKED, now, None).variants == ["rmsnorm"]
    found = confirmation_request(ASKED, now, None)
    assert (found.studies, found.against) == ("group:etth-rmsnorm", None)


@pytest.mark.parametrize(
    ("standing", "line"),
    [
        (
            Standing(stage=Stage.SEARCH, done=0, planned=400, device_s=0.0),
            "stage 1 of 4, search: 0 of 400 trials",
        ),
        (
            Standing(stage=Stage.SEARCH, done=120, planned=400, device_s=84.0, left_s=196.0),
            "stage 1 of 4, search: 120 of 400 trials, 0.7 s each, about 3.3 min left",
        ),
        (
            Standing(stage=Stage.SEARCH, done=9, planned=None, device_s=9.0, left_s=50.0),
            "stage 1 of 4, search: 9 trials, 1 s each, about 50 s left",
        ),
        (
            Standing(stage=Stage.REEVALUATION, done=0, planned=252, device_s=0.0, estimated=True),
            "stage 2 of 4, re-evaluation: 0 of about 252 runs",
        ),
        (
            Standing(stage=Stage.REEVALUATION, done=0, planned=0, device_s=0.0, over=True),
            "stage 2 of 4, re-evaluation: not needed, the searches ran again what was promising",
        ),
        (
            Standing(stage=Stage.CONFIRMATION, done=60, planned=60, device_s=42.0, over=True),
            "stage 3 of 4, confirmation: done, 60 runs, 42 s of device time",
        ),
        (
            Standing(stage=Stage.VERDICT, done=0, planned=None, device_s=0.0),
            "stage 4 of 4, verdict",
        ),
    ],
)
def test_a_stage_is_one_line(standing: Standing, line: str) -> None:
    assert standing.line == line
