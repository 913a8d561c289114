"""What a search is foretold to cost: seconds on devices, hours on several, money."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.config import Backend
from tuner.estimate.cost_model import Z80, Foretold
from tuner.estimate.cost_sizes import Size, key_of, size_of, sizes_of
from tuner.estimate.search_hours import (
    NOTHING,
    Ended,
    beside_training,
    default_is_cut,
    search_seconds,
    those_that_trained,
    trials_bought,
)
from tuner.estimate.size_costs import SizeCosts
from tuner.estimate.work_ahead import (
    SPREAD_ALL_OVER,
    Kind,
    RecordedSearch,
    SpaceCosts,
    recorded_searches,
    work_ahead,
)
from tuner.search.methods import method_of, prunes
from tuner.spec.definition import StudyDefinition

# What one trial of a search is foretold to take, and one training of its default.


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


HOUR_S = 3600.0
IN_COMMON = math.sqrt(0.5)
"""Of what the sizes' epochs may be off by: half of its variance is taken to be common to all of
them, and does not go away where trials are many. With one to eight measured sizes 75 to 92 % of
recorded searches lie in their range of four out of five then (benchmarks/estimate); 19 to 76 % did
without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchForetold:
    """Of one search, or of what there will be of it."""

    trials: int
    ended: int
    epoch: Foretold
    """Seconds of one of the default's."""
    trial: Foretold
    """Seconds of a device for one trial: the range holds four trials in five."""
    search: Foretold
    """Seconds of devices for all its trials, those that have ended included."""
    default_run: Foretold
    """Seconds of a training of the default to its end."""
    searches: int
    """Recorded ones that it was foretold from."""
    bought: Foretold | None = None
    """Trials that its time on devices buys; None where its trials are over before."""

    @property
    def to_come(self) -> int:
        return max(0, self.trials - self.ended)


def kind_of(definition: StudyDefinition, *, sampler: str, prune: bool | None) -> Kind:
    """Of a study's search, what the epochs of its trials depend on."""
    low, high = definition.space.learning_rate.bounds()
    return Kind(
        variant=definition.variant,
        all_over=sampler in SPREAD_ALL_OVER,
        repeats=method_of(sampler).repeats,
        prune=prunes(sampler, prune),
        training=definition.training,
        learning_rates=(low, high),
    )


def search_foretold(
    definition: StudyDefinition,
    costs: SizeCosts,
    *,
    trials: int,
    ended: Sequence[Ended] = (),
    sampler: str = "auto",
    prune: bool | None = None,
    within_s: float | None = None,
    recorded: Sequence[RecordedSearch] | None = None,
) -> SearchForetold | None:
    """What a search will take.

    Args:
        definition: of its study.
        costs: of its sizes.
        trials: in all.
        ended: those that have, in order.
        sampler: that chooses.
        prune: whether dominated trials are ended early; None: as the sampler has it.
        within_s: that it may hold devices for; None: as long as its trials take.
        recorded: searches to go by; None: all that are committed.

    Returns:
        None where the costs do not tell the default's epoch.
    """
    known = recorded_searches() if recorded is None else recorded
    seen = those_that_trained(ended)
    kind = replace(
        kind_of(definition, sampler=sampler, prune=prune), default_cut=default_is_cut(seen)
    )
    sizes = sizes_of(definition.space)
    default = size_of(definition.defaults.as_dict())
    figures = costs.epoch_seconds([*sizes, default])
    if (epoch := figures.get(key_of(default))) is None:
        return None
    seeds, unsure = definition.seeds_per_trial, off_in_common(list(figures.values()))
    epochs = SpaceCosts([seeds * each.middle for each in figures.values()], seeds * epoch.middle)
    to_train, seen_s = trials - len(ended) + len(seen), [each.trained_s for each in seen]
    ahead = work_ahead(kind, epochs, known, trials=to_train, seen_s=seen_s, unsure=unsure)
    measured_s = seeds * (_setup_s(costs, default) + costs.evaluation_s)
    trial = trial_foretold(kind, epochs, known, max(1, to_train), measured_s, unsure)
    once = _built_once(costs, sizes, seen, trials=to_train)
    search = together([search_seconds(ahead, ended, trials=trials, measured_s=measured_s), once])
    bought = None
    if ahead is not None and within_s is not None and search.middle > within_s:
        bought = trials_bought(ahead, ended, measured_s=measured_s, within_s=within_s, once=once)
    if within_s is not None:
        search = _ended_by_time(search, trial, within_s, sum(each.held_s for each in ended))
    return SearchForetold(
        trials=trials,
        ended=len(ended),
        epoch=epoch,
        trial=trial,
        search=search,
        default_run=default_run_foretold(kind, epoch, known, measured_s, seen),
        searches=0 if ahead is None else ahead.searches,
        bought=bought,
    )


def off_in_common(sizes: Sequence[Foretold]) -> float:
    """Standard deviation of the logarithm of all sizes' epochs together: large where few sizes were
    measured.
    """
    spreads = [math.log(each.ratio) / (2 * Z80) for each in sizes if each.low > 0]
    return IN_COMMON * statistics.fmean(spreads) if spreads else 0.0


def together(parts: Sequence[Foretold], *, alike: bool = False) -> Foretold:
    """Their sum. Half of how far each may be off is taken to be common to all of them, the rest
    its own luck; `alike`: all of it is common.
    """
    middle = sum(each.middle for each in parts)
    down = [each.middle - each.low for each in parts]
    up = [each.high - each.middle for each in parts]
    return Foretold(
        middle=middle,
        low=max(0.0, middle - _off(down, alike=alike)),
        high=middle + _off(up, alike=alike),
    )


def _off(each: Sequence[float], *, alike: bool) -> float:
    if alike:
        return sum(each)
    return math.sqrt(0.5 * sum(each) ** 2 + 0.5 * sum(one**2 for one in each))


def elapsed(device_s: Foretold, *, devices: int, longest_s: float, start_s: float) -> Foretold:
    """Seconds until all is over on so many devices: each starts once, and the last trial runs while
    the others are idle.
    """
    idle = start_s + (longest_s * (devices - 1) / devices if devices > 1 else 0.0)
    return device_s.times(1 / devices).plus(idle)


def money(device_s: Foretold, price_per_hour: float) -> Foretold:
    return device_s.times(price_per_hour / HOUR_S)


def _setup_s(costs: SizeCosts, default: Mapping[str, Any]) -> float:
    """Of the usual trial: the middle of what was measured."""
    seen = sorted(each.setup_s for each in costs.sizes if each.setup_s > 0)
    mine = costs.of(default)
    if not seen:
        return 0.0 if mine is None else mine.setup_s
    return seen[len(seen) // 2]


def _ended_by_time(whole: Foretold, trial: Foretold, within_s: float, spent_s: float) -> Foretold:
    """What runs when the time is over comes to its end: in the mean, half of it is left."""
    if spent_s >= within_s:
        return whole.at_most(spent_s)
    usual_s = trial.middle
    return Foretold(
        middle=min(whole.middle, within_s + usual_s / 2),
        low=min(whole.low, within_s),
        high=min(whole.high, within_s + usual_s),
    )


def _built_once(
    costs: SizeCosts, sizes: Sequence[Size], ended: Sequence[Ended], *, trials: int
) -> Foretold:
    """Seconds that trials wait for a compiler, once for each size that nobody has had here. Fused
    kernels are made beside the trials, and other sizes come first meanwhile.
    """
    seen = [
        each.built_s
        for each in costs.sizes
        if each.backend == Backend.COMPILE.value and each.built_s > 0
    ]
    there = {key_of(each.size) for each in costs.sizes} | {each.size for each in ended}
    new = sum(key_of(size) not in there for size in sizes)
    if not seen or not new:
        return NOTHING
    most_s = min(new, max(0, trials - len(ended))) * statistics.fmean(seen)
    return Foretold(middle=0.75 * most_s, low=0.5 * most_s, high=most_s)
