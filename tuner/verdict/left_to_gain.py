"""How much more runs of what a study has tried could still change what it recommends: whether it is
time to stop.

Of many draws of what may be true, each says which configuration would be best to have confirmed,
and by how much it is better than the one that is recommended. What has not been tried is not in it,
so it bounds what more seeds would give and not what more configurations would. How often it is
right: benchmarks/verdict/noisy_searches.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tuner.spec.confirming import CONFIRMATION_SEEDS
from tuner.spec.margin import MARGIN
from tuner.verdict.runs_model import RunsModel

_DRAWS = 1000
_SEED = 20261123


@dataclass(frozen=True, slots=True)
class LeftToGain:
    """Shares of the time of what is recommended, each 0 where nothing can be gained."""

    expected: float
    at_most: float
    """With the confidence that was asked for."""


def left_to_gain(
    model: RunsModel,
    recommended: int | None,
    *,
    margin: float = MARGIN,
    confidence: float = 0.9,
    candidates: Collection[int] | None = None,
) -> LeftToGain:
    """By what share more runs would lower the time that stands after a confirmation.

    Args:
        model: of the study's runs.
        recommended: the trial that is recommended; None where the default stands.
        margin: of the recommendation.
        confidence: of `at_most`.
        candidates: trials that may be recommended; all where None.

    Raises:
        ValueError: the default configuration is not among the runs, or the recommended trial is no
            configuration's first.
    """
    worth = model.drawn_worth(margin, CONFIRMATION_SEEDS, _DRAWS, _SEED)
    best = worth[:, model.among(candidates)].max(axis=1, initial=0.0)
    if recommended is None:
        more = best
    else:
        more = np.maximum(best - worth[:, model.trials.index(recommended)], 0.0)
    # Where little is open, more than `confidence` of the draws may gain nothing at all.
    expected = float(more.mean())
    at_most = max(expected, float(np.quantile(more, confidence)))
    return LeftToGain(1 - math.exp(-expected), 1 - math.exp(-at_most))
