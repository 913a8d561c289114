"""What a search is foretold to cost: seconds on devices, hours on several, money."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.config import Backend
from tuner.estimate.cost_model import (
    Z80,
    Foretold,
    Size,
    SizeCosts,
    costs_of_trials,
    key_of,
    size_of,
    sizes_of,
)
from tuner.estimate.work_ahead import (
    SPREAD_ALL_OVER,
    Kind,
    RecordedSearch,
    SpaceCosts,
    WorkAhead,
    recorded_searches,
    work_ahead,
)
from tuner.search.history import configuration
from tuner.search.methods import method_of, prunes
from tuner.spec.definition import StudyDefinition
from tuner.storage.records import device_seconds
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, read_results

# What the trials of one search hold their devices for: training ahead, and what each takes beside
# it.


MEASURED_COUNTS = 5
"""What is measured before a search counts as so many of its trials."""
MORE_THAN_USUAL = 1.15
"""The mean trial takes more beside its training than the usual one: a wait now and then for what to
try."""
FIRST_S = 2.0
"""A search's first trial waits for what is loaded and built once: 1 to 6 s on H100s and H200s."""
EARLY, EARLY_TIMES = 10, 2.0
"""The first trials meet most sizes for the first time, and take so much more beside training."""
BESIDE_SPREAD = 0.3
NOTHING = Foretold.exactly(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A trial that has ended: seconds on its training's clock, and those it held its device for."""

    trained_s: float
    held_s: float
    size: str = ""
    """The key of its size; empty where nobody asks for it."""
    of_default: bool = False
    """It ran the default configuration."""
    cut: bool = False
    """The limit of epochs ended its training."""


def beside_training(measured_s: float, seen: Sequence[float]) -> Foretold:
    """Seconds a trial beside its training.

    Args:
        measured_s: set-up, evaluation and what else is measured of a trial.
        seen: of trials that have ended, in order. The first is the device's first, and waits for
            what is built once: it is left out.

    Returns:
        Of one that is no early one.
    """
    later = [each / EARLY_TIMES for each in seen[1:EARLY]] + list(seen[EARLY:])
    count = MEASURED_COUNTS + len(later)
    usual = statistics.median(later) if later else 0.0
    middle = MORE_THAN_USUAL * (MEASURED_COUNTS * measured_s + len(later) * usual) / count
    spread = BESIDE_SPREAD / math.sqrt(count / MEASURED_COUNTS)
    return Foretold.around(math.log(max(middle, 1e-9)), spread)


def search_seconds(
    ahead: WorkAhead | None, ended: Sequence[Ended], *, trials: int, measured_s: float
) -> Foretold:
    """Seconds on devices of all trials of a search, those that have ended included.

    Args:
        ahead: of the others; None where there are none.
        ended: in their order.
        trials: of the search in all.
        measured_s: of one trial beside its training, as it was measured.
    """
    spent, trained = sum(each.held_s for each in ended), those_that_trained(ended)
    to_come = max(0, trials - len(ended))
    if ahead is None or not to_come:
        return Foretold.exactly(spent)
    usual = beside_training(measured_s, _beside_s(trained))
    beside = usual.times(float(_as_usual(len(trained), to_come).sum())).plus(_first_s(trained))
    left = ahead.seconds
    down = math.hypot(left.middle - left.low, beside.middle - beside.low)
    up = math.hypot(left.high - left.middle, beside.high - beside.middle)
    middle = spent + left.middle + beside.middle
    return Foretold(middle=middle, low=max(spent, middle - down), high=middle + up)


def trials_bought(
    ahead: WorkAhead,
    ended: Sequence[Ended],
    *,
    measured_s: float,
    within_s: float,
    once: Foretold = NOTHING,
) -> Foretold:
    """How many trials a search has had when its time on devices is over, those that have ended
    included, and the last one, which runs to its end: as the recorded ones go on, with their long
    trials where those have them, each of them as fast, or as slow, as `ahead` may be.

    Args:
        ahead: of the trials to come.
        ended: in their order.
        measured_s: of one trial beside its training, as it was measured.
        within_s: that the search may hold devices for, in all.
        once: seconds that a compiler takes of it.
    """
    left_s, trained = within_s - sum(each.held_s for each in ended), those_that_trained(ended)
    beside_s = beside_training(measured_s, _beside_s(trained)).middle
    most = max(map(len, ahead.courses))
    beside = beside_s * _as_usual(len(trained), most)
    beside[0] += _first_s(trained)
    usual_s = math.exp(statistics.fmean(math.log(each.sum()) for each in ahead.courses))

    def counts(whole_s: float, once_s: float) -> list[int]:
        scaled = (c * (whole_s / usual_s) + beside[: len(c)] for c in ahead.courses)
        return [_begun_within(course, left_s, once_s) for course in scaled]

    whole = ahead.seconds
    alike = counts(whole.middle, once.middle)
    by_course = Foretold.of_all(np.array(alike))
    middle = by_course.middle
    slow = float(np.median(counts(whole.high, once.high)))
    fast = float(np.median(counts(whole.low, once.low)))
    found = Foretold(
        middle=len(ended) + middle,
        low=len(ended) + middle / _both(middle, slow, by_course.low),
        high=len(ended) + middle * _both(middle, fast, by_course.high),
    )
    return found.at_most(len(ended) + most)


def those_that_trained(ended: Sequence[Ended]) -> list[Ended]:
    """All but those that failed before: they are of a search's trials and of its time, and tell
    nothing of the others.
    """
    return [each for each in ended if each.trained_s > 0]


def default_is_cut(ended: Sequence[Ended]) -> bool:
    """Whether the limit of epochs cuts the default off, as far as its own trials can say."""
    mine = [each for each in ended if each.of_default]
    return bool(mine) and all(each.cut for each in mine)


def _beside_s(trained: Sequence[Ended]) -> list[float]:
    return [each.held_s - each.trained_s for each in trained]


def _first_s(trained: Sequence[Ended]) -> float:
    """What the first trial waits for, where it is to come."""
    return 0.0 if trained else FIRST_S


def _as_usual(done: int, to_come: int) -> np.ndarray:
    """What each trial to come takes beside its training, as multiples of the usual one's."""
    return np.where(np.arange(done, done + to_come) < EARLY, EARLY_TIMES, 1.0)


def _both(middle: float, by_pace: float, by_course: float) -> float:
    """How many times off a count may be: by how fast all of a search is, and by when its long
    trials come.
    """
    if middle <= 0:
        return 1.0
    logs = (math.log(max(each, 0.5) / middle) for each in (by_pace, by_course))
    return math.exp(math.hypot(*logs))


def _begun_within(course: np.ndarray, left_s: float, once_s: float) -> int:
    """Trials that begin before the time is over: one at least, where there is any."""
    if left_s <= 0:
        return 0
    over = int(np.searchsorted(np.cumsum(course), left_s - once_s))
    return min(over + 1, len(course))


# What the trials that a study has by now tell of those to come.


def trained(opened: OpenStudy) -> list[TrialRecord]:
    """The trials that trained and have ended, in the order of their numbers."""
    return [each for each in _ended(opened) if (each.recorded.wall_clock_s or 0.0) > 0]


def _ended(opened: OpenStudy) -> list[TrialRecord]:
    return [record for record in read_results(opened).records if record.state.is_finished()]


def ended_trials(opened: OpenStudy) -> list[Ended]:
    """All that have ended: their times, which size each had, and which ran the default. One that
    failed before its training began held its device, too.
    """
    default = configuration(opened.definition.defaults.as_dict())
    return [
        Ended(
            trained_s=record.recorded.wall_clock_s or 0.0,
            held_s=device_seconds(record.recorded),
            size=key_of(size_of(dict(record.params))),
            of_default=configuration(record.params) == default,
            cut=record.recorded.is_cut,
        )
        for record in _ended(opened)
    ]


def costs_so_far(studies: Iterable[OpenStudy], device_model: str) -> SizeCosts | None:
    """What they recorded of their sizes; None where no trial trained."""
    records = [record for opened in studies for record in trained(opened)]
    return costs_of_trials(((each.params, each.recorded) for each in records), device_model)


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
    more = beside_training(beside_s, ()).middle
    return _less_sure(Foretold.of_all(every), unsure).plus(more)


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
    epochs = Foretold.of_all(first).at_most(kind.training.max_epochs)
    return epochs.by(epoch).plus(beside_s)


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
