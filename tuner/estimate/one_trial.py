"""What one trial of a search is foretold to take, and one training of its default."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from tuner.estimate.cost_model import Z80, Foretold
from tuner.estimate.recorded_work import RecordedSearch, SpaceCosts
from tuner.estimate.search_hours import Ended, beside_training
from tuner.estimate.work_ahead import Kind

DEFAULT_SPREAD = 0.1
"""Of the logarithm of what one training of a default takes, from seed to seed: 0.07 to 0.12 for
eight networks."""


def trial_foretold(
    kind: Kind,
    costs: SpaceCosts,
    known: Sequence[RecordedSearch],
    trials: int,
    beside_s: float,
    unsure: float,
) -> Foretold:
    """Of one trial of a search of this length."""
    alike = [each for each in known if each.all_over == kind.all_over] or list(known)
    carried = [each.seconds(costs, kind.training, kind.learning_rates)[:trials] for each in alike]
    every = np.concatenate(carried) if carried else np.array([0.0])
    low, middle, high = (float(q) for q in np.quantile(every, (0.1, 0.5, 0.9)))
    more = beside_training(beside_s, ()).middle
    return _less_sure(Foretold(middle=middle, low=low, high=high), unsure).plus(more)


def _less_sure(found: Foretold, unsure: float) -> Foretold:
    """With the standard deviation of its logarithm beside the range that it has."""
    if found.low <= 0:
        return found
    down, up = found.middle / found.low, found.high / found.middle
    more = Z80 * unsure
    return Foretold(
        middle=found.middle,
        low=found.middle / math.exp(math.hypot(math.log(down), more)),
        high=found.middle * math.exp(math.hypot(math.log(up), more)),
    )


def default_run_foretold(
    kind: Kind,
    epoch: Foretold,
    known: Sequence[RecordedSearch],
    beside_s: float,
    ended: Sequence[Ended],
) -> Foretold:
    """By its own runs, where some have ended. Else by the first trial of each recorded search,
    which is its default and never pruned.
    """
    if mine := [each.trained_s for each in ended if each.of_default]:
        log_s = math.log(statistics.fmean(mine) + beside_s)
        return Foretold.around(log_s, DEFAULT_SPREAD / math.sqrt(len(mine)))
    first = np.array([float(each.epochs[0]) for each in known if each.max_epochs > each.patience])
    if not len(first):
        first = np.array([float(kind.training.max_epochs)])
    low, middle, high = (
        float(min(q, kind.training.max_epochs)) for q in np.quantile(first, (0.1, 0.5, 0.9))
    )
    return Foretold(
        middle=middle * epoch.middle + beside_s,
        low=low * epoch.low + beside_s,
        high=high * epoch.high + beside_s,
    )
