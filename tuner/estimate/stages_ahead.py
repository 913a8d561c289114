"""What the stages of a whole retune are foretold to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.estimate.cost_model import Foretold
from tuner.estimate.foretold import SearchForetold, together
from tuner.search.methods import method_of
from tuner.spec.confirming import CONFIRMATION_SEEDS

REEVALUATED = 90
"""Runs of the re-evaluation of one search by a sampler that repeats nothing: 3 rounds of 6
configurations with 5 seeds."""
CONFIRMED = (1.2, 2.0, 2.5)
"""What a confirmation of one search takes, in runs of the default on all its seeds: the default,
and beside it nothing, where that stands, or up to three configurations that are faster. Of 20
that were recorded (benchmarks/retune): those after searches of 240 s, on 90 seeds, took 1.8 to
2.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Seconds of devices of a retune, all its variants together."""

    search: Foretold
    reevaluation: Foretold
    confirmation: Foretold

    @property
    def whole(self) -> Foretold:
        return together([self.search, self.reevaluation, self.confirmation], alike=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The searches of a retune that are over."""

    searches: int = 0
    spent_s: float = 0.0
    """What they held devices for."""


def stages_of(
    searches: Sequence[SearchForetold],
    *,
    sampler: str = "auto",
    seeds: int = CONFIRMATION_SEEDS,
    budget_s: float | None = None,
    over: Over | None = None,
) -> Stages:
    """Of a retune with these searches, and with those that are `over`: a part of their trials run
    again where the sampler has not done so, and a confirmation of each on `seeds` seeds.

    Args:
        searches: those that trials are to come of, one at least.
        sampler: that chooses.
        seeds: of a confirmation.
        budget_s: for all searches and their re-evaluation.
        over: the others.
    """
    over = over or Over()
    usual = together([each.default_run for each in searches]).times(1 / len(searches))
    runs = [*(each.default_run for each in searches), *[usual] * over.searches]
    low, middle, high = CONFIRMED
    repeats = method_of(sampler).repeats
    again = together([each.times(0.0 if repeats else REEVALUATED / 2) for each in runs], alike=True)
    searched = together([each.search for each in searches]).plus(over.spent_s)
    if budget_s is not None:
        again = again.at_most(max(0.0, budget_s - searched.low))
    confirmations = [
        Foretold(
            middle=middle * seeds * each.middle,
            low=low * seeds * each.low,
            high=high * seeds * each.high,
        )
        for each in runs
    ]
    return Stages(
        search=searched,
        reevaluation=again,
        confirmation=together(confirmations),
    )
