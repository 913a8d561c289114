"""What retuning cost, and when it pays, of figures that are known."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tuner.verdict.confirmation import Confirmation
from tuner.verdict.payback import Payback, Spent
from tuner.verdict.retuned_words import bought_sentence, duration, payback_sentence
from tuner.verdict.stats.intervals import Interval

SPENT = Spent(
    search_s=180.0,
    reevaluation_s=42.0,
    confirmation_s=24.0,
    trials=400,
    reevaluation_runs=120,
    confirmation_runs=60,
)


@dataclass(frozen=True)
class Ratio:
    """What a confirmation found, of a default of one second."""

    estimate: float
    low: float
    high: float

    def confirmation(self) -> Confirmation:
        ratio = Interval(self.estimate, self.low, self.high, 30)
        found = SimpleNamespace(
            study="etth-original-2",
            default=SimpleNamespace(seconds=Interval(1.0, 0.9, 1.1, 30)),
            default_cut_off=0,
            test=SimpleNamespace(ratio=ratio, claimed=True),
            trial=7,
        )
        return cast("Confirmation", found)


def payback(ratio: Ratio | None, searches: int = 1) -> Payback:
    return Payback(
        group="etth-original",
        spent=SPENT,
        confirmation=ratio.confirmation() if ratio else None,
        confirmed=min(4, searches),
        searches=searches,
    )


def test_it_pays_once_what_a_training_saves_adds_up_to_its_cost() -> None:
    found = payback(Ratio(0.5, 0.4, 0.6))
    assert SPENT.total_s == 246.0
    assert found.trainings == (492, 410, 615)  # 246 s at 0.5, at 0.6 and at 0.4 s each
    assert payback_sentence(found, "original") == (
        "Retuning original cost 4.1 min of device time (search 3.0 min, re-evaluation 42 s, "
        "confirmation 24 s): it pays after 492 [410, 615] trainings"
    )
    document: dict[str, Any] = found.as_dict()
    assert document["pays_after"] == {"trainings": 492, "low": 410, "high": 615}
    assert document["saved_s"]["estimate"] == pytest.approx(0.5)


def test_of_several_searches_it_is_said_which_one_pays() -> None:
    said = payback_sentence(payback(Ratio(0.5, 0.4, 0.6), searches=5), "original")
    assert said.endswith(
        "with what etth-original-2 recommends, the middle one of 4 confirmed of 5 searches"
    )


def test_where_it_may_save_nothing_there_is_no_upper_limit() -> None:
    found = payback(Ratio(0.75, 0.5, 1.1))
    assert found.trainings == (984, 492, math.inf)
    assert "after 984 [492, no limit] trainings" in payback_sentence(found, "it")
    assert found.as_dict()["pays_after"]["high"] is None


@pytest.mark.parametrize(
    ("ratio", "why"),
    [
        (None, "it does not pay, nothing faster than the default is confirmed"),
        (Ratio(1.2, 1.1, 1.3), "it does not pay, what is confirmed saves no time"),
        (Ratio(1.0, 0.9, 1.1), "it does not pay, what is confirmed saves no time"),
    ],
)
def test_it_does_not_pay_where_nothing_is_confirmed_or_saved(ratio: Ratio | None, why: str) -> None:
    found = payback(ratio)
    assert found.trainings is None
    assert payback_sentence(found, "rmsnorm").endswith(why)
    assert found.as_dict()["pays_after"] is None


def test_where_timings_were_disturbed_nobody_knows_when_it_pays() -> None:
    known = payback(Ratio(0.5, 0.4, 0.6))
    confirmation = SimpleNamespace(
        default=SimpleNamespace(seconds=None), test=SimpleNamespace(ratio=None), study="s", trial=7
    )
    found = dataclasses.replace(known, confirmation=cast("Confirmation", confirmation))
    assert found.trainings is None
    assert payback_sentence(found, "it").endswith(
        "when it pays is not known, for too many timings of its confirmation were disturbed"
    )


def test_what_a_budget_bought_is_said() -> None:
    assert bought_sentence(SPENT, 300.0, 2) == (
        "The budget of 5.0 min bought 400 trials in 2 searches (3.0 min) and 120 runs of "
        "re-evaluation (42 s)"
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0 s"), (0.52, "0.52 s"), (42.4, "42 s"), (246.0, "4.1 min"), (7200.0, "2.0 h")],
)
def test_durations_are_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said
