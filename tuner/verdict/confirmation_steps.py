"""Which configurations of a search are confirmed, and in which order.

What is fastest is hardly ever within the margin by much, and what is surely within it is slower.
Tested one after the other, the surest first, several cost no more errors than one
(`tuner.verdict.confirmation`), and what stands in the end is the boldest that was shown to be as
good. The order is the one by which most time is expected to be saved in the end: worked out on
draws of what may be true, and of what a confirmation may then come to. How often each has run is
no matter: fresh seeds decide, and a search of few trials has run hardly anything five times
(docs/decisions/0043).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tuner.spec.confirming import CONFIRMATION_SEEDS, STEPS
from tuner.verdict.runs_model import Estimate, RunsModel

Array = np.ndarray[Any, Any]

LEAST_CHANCE = 0.5
"""What is confirmed is at least as probably within the margin as not."""
LEAST_GAIN = 0.01
"""Of the logarithm of time: what a further step must be expected to add, for it costs runs."""

_DRAWS = 1000
_SEED = 20261124
_SHORT_LIST = 40
"""Of candidates, those that are worth most by themselves."""


def confirmation_steps(
    model: RunsModel,
    first: int | None,
    *,
    margin: float,
    seeds: int = CONFIRMATION_SEEDS,
    most: int = STEPS,
    candidates: Collection[int] | None = None,
) -> tuple[Estimate, ...]:
    """What is to be tested, in this order; empty where nothing is expected to be shown.

    Args:
        model: of the study's runs.
        first: the trial that is recommended, which is among them; None where none is.
        margin: how much higher an MQL may be, relative.
        seeds: of the confirmation.
        most: how many at most.
        candidates: trials that may be recommended; all where None.

    Raises:
        ValueError: the default configuration is not among the runs.
    """
    chances = model.chance_of_default(margin)
    may = model.faster(candidates) & (chances >= LEAST_CHANCE)
    saved, claims = model.drawn_confirmations(margin, seeds, _DRAWS, _SEED)
    alone = (saved * claims).mean(axis=0)
    rows = [row for row in np.argsort(-alone, kind="stable").tolist() if may[row]][:_SHORT_LIST]
    steps = [] if first is None else [model.trials.index(first)]
    expected = _expected(saved, claims, steps)
    while len(steps) < most:
        more = [_inserted(steps, row, place) for row in rows for place in range(len(steps) + 1)]
        longer = [each for each in more if len(set(each)) > len(steps)]
        if not longer:
            break
        best = max(longer, key=lambda each: _expected(saved, claims, each))
        gained = _expected(saved, claims, best) - expected
        if gained < LEAST_GAIN:
            break
        steps, expected = best, expected + gained
    return tuple(model.estimate(model.trials[row], chances) for row in steps)


def _inserted(steps: Sequence[int], row: int, place: int) -> list[int]:
    return [*steps[:place], row, *steps[place:]]


def _expected(saved: Array, claims: Array, steps: Sequence[int]) -> float:
    """Of the logarithm of the time that is saved in the end, over draws: (draws, configurations)
    each.
    """
    found, going_on = np.zeros(len(saved)), np.ones(len(saved), dtype=bool)
    for row in steps:
        going_on = going_on & claims[:, row]
        found = np.where(going_on, saved[:, row], found)
    mean = float(found.mean())
    assert math.isfinite(mean), "times are finite"
    return mean
