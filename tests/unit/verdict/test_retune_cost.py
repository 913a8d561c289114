"""What retuning took and saves, of figures that are known."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from tuner.verdict.confirmation import Confirmation
from tuner.verdict.retune_cost import RetuneCost, Spent, bought_sentence, cost_sentence, duration
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


def cost_of(ratio: Ratio | None, searches: int = 1) -> RetuneCost:
    return RetuneCost(
        group="etth-original",
        spent=SPENT,
        confirmation=ratio.confirmation() if ratio else None,
        confirmed=min(4, searches),
        searches=searches,
    )


def test_what_it_took_and_saves_is_one_sentence() -> None:
    found = cost_of(Ratio(0.5, 0.4, 0.6), searches=5)
    assert SPENT.total_s == 246.0
    assert cost_sentence(found, "original") == (
        "The retune of original took 4.1 min of device time; each training with what "
        "etth-original-2 recommends saves 0.5 s"
    )
    assert found.as_dict()["saved_s"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ratio", "why"),
    [
        (None, "nothing faster than the default is confirmed"),
        (Ratio(1.2, 1.1, 1.3), "what is confirmed saves no time"),
    ],
)
def test_where_nothing_is_confirmed_or_saved_it_says_so(ratio: Ratio | None, why: str) -> None:
    assert cost_sentence(cost_of(ratio), "rmsnorm").endswith(f"device time; {why}")


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
