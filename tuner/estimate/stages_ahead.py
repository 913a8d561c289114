"""What the stages of a whole retune are foretold to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.estimate.cost_model import Foretold
from tuner.estimate.foretold import SearchForetold, together
from tuner.search.methods import method_of
from tuner.spec.confirming import CONFIRMATION_SEEDS

REEVALUATED, BESIDE_THEM = 108, 18
"""Runs of the re-evaluation of one search by a sampler that repeats nothing: 3 rounds of 6
configurations with 6 seeds, each half as long as one of the default; and those of the default."""
CONFIRMED = (1.2, 2.0, 2.5)
"""What a confirmation of one search takes, in runs of the default on all its seeds: the default,
and beside it nothing, where that stands, or up to three configurations that are faster. Of 45
that were recorded (benchmarks/retune) 39 took so much."""
ABLATED = (0.8, 2.8, 3.7)
"""What the ablation of what one search recommends takes, in runs of the default on all its seeds.
Of 30 that were recorded 24 took 3.0 to 4.2; six searches recommended the default, or nothing that
an ablation is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Seconds of devices of a retune, all its variants together."""

    search: Foretold
    reevaluation: Foretold
    confirmation: Foretold
    ablation: Foretold | None = None
    """None where nobody asks for it."""

    @property
    def whole(self) -> Foretold:
        parts = [self.search, self.reevaluation, self.confirmation]
        if self.ablation is not None:
            parts.append(self.ablation)
        return together(parts, alike=True)


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
    ablated_seeds: int | None = None,
    budget_s: float | None = None,
    over: Over | None = None,
) -> Stages:
    """Of a retune with these searches, and with those that are `over`: a part of their trials run
    again where the sampler has not done so, and a confirmation of each on `seeds` seeds.

    Args:
        searches: those that trials are to come of, one at least.
        sampler: that chooses.
        seeds: of a confirmation.
        ablated_seeds: of an ablation; None: there is none.
        budget_s: for all searches and their re-evaluation.
        over: the others.
    """
    over = over or Over()
    usual = together([each.default_run for each in searches]).times(1 / len(searches))
    runs = [*(each.default_run for each in searches), *[usual] * over.searches]
    repeats = method_of(sampler).repeats
    times = 0.0 if repeats else REEVALUATED / 2 + BESIDE_THEM
    again = together([each.times(times) for each in runs], alike=True)
    searched = together([each.search for each in searches]).plus(over.spent_s)
    if budget_s is not None:
        again = again.at_most(max(0.0, budget_s - searched.low))
    return Stages(
        search=searched,
        reevaluation=again,
        confirmation=_on_seeds(runs, seeds, CONFIRMED),
        ablation=None if ablated_seeds is None else _on_seeds(runs, ablated_seeds, ABLATED),
    )


def _on_seeds(runs: Sequence[Foretold], seeds: int, times: tuple[float, float, float]) -> Foretold:
    """Of each search, so many times a run of its default on every seed."""
    low, middle, high = times
    return together(
        [
            Foretold(
                middle=middle * seeds * each.middle,
                low=low * seeds * each.low,
                high=high * seeds * each.high,
            )
            for each in runs
        ]
    )
