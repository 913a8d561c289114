"""What the trials of one search hold their devices for: training ahead, and what each takes beside
it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from tuner.estimate.cost_model import Foretold
from tuner.estimate.cost_sizes import key_of, size_of
from tuner.estimate.size_costs import SizeCosts, costs_of_trials
from tuner.estimate.work_ahead import WorkAhead
from tuner.search.history import configuration
from tuner.storage.records import device_seconds
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, is_cut, read_results

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
    usual = usual_beside_s(later)
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
    down = math.hypot(ahead.middle - ahead.low, beside.middle - beside.low)
    up = math.hypot(ahead.high - ahead.middle, beside.high - beside.middle)
    middle = spent + ahead.middle + beside.middle
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

    alike = counts(ahead.middle, once.middle)
    few, middle, many = (float(each) for each in np.quantile(alike, (0.1, 0.5, 0.9)))
    slow = float(np.median(counts(ahead.high, once.high)))
    fast = float(np.median(counts(ahead.low, once.low)))
    found = Foretold(
        middle=len(ended) + middle,
        low=len(ended) + middle / _both(middle, slow, few),
        high=len(ended) + middle * _both(middle, fast, many),
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


def usual_beside_s(seconds: Sequence[float]) -> float:
    """Of trials that were recorded, without those that waited for something."""
    return statistics.median(seconds) if seconds else 0.0


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
            cut=is_cut(record.recorded),
        )
        for record in _ended(opened)
    ]


def costs_so_far(studies: Iterable[OpenStudy], device_model: str) -> SizeCosts | None:
    """What they recorded of their sizes; None where no trial trained."""
    records = [record for opened in studies for record in trained(opened)]
    return costs_of_trials(((each.params, each.recorded) for each in records), device_model)


def installed_torch() -> str:
    """The version of torch that a worker here would run, which is not imported for it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
