"""How long the trials of a search will train: a distribution before the first one, and of what is
left once some have ended.

Each recorded search, carried over to the sizes and settings at hand, is one answer. Their
logarithms are taken as normal. What a search that has begun took so far, beside what the recorded
ones took to that point, shifts the answer by as much as it did among these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.config import TrainingSettings
from tuner.estimate.recorded_work import RecordedSearch

LEAST_ALIKE = 3
"""Fewer recorded searches of a kind tell no spread: then all kinds count, and the range is wide."""
OWN_VARIANT = 6
"""So many of the same variant, and others are not asked."""
LEAST_LENGTH = 30
USUAL_SPREAD, USUAL_DEGREES = 0.2, 8
"""Of the logarithm, between recorded searches of one kind: a spread that few of them show is taken
part of the way to it."""
SPREAD_SEEN, SPREAD_SEEN_ONCE = 0.3, 0.4
"""The same of what is left of one that has begun, which varies more than the whole; and more where
nothing is run again: what is repeated takes seconds that are known by then."""
UNLIKE_SPREAD = 0.45
"""More, where recorded searches of the kind are too few."""
DRIFT = 0.25
"""Of the later trials of such a search against the first ones: pruning, and luck."""
HELD_BACK = 0.05
LEAST_VARY = 0.8
"""Between the trials of a search all over a space: what few trials show is often too little."""
_Z90 = 1.2815515655446004


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Of a search, what its trials' epochs depend on."""

    variant: str
    all_over: bool
    repeats: bool
    """Its sampler runs configurations again: many of its trials are of what is fast."""
    prune: bool
    training: TrainingSettings
    learning_rates: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkAhead:
    """Seconds of training that are left of a search, all trials together; its logarithm is taken as
    Student's t.
    """

    log_seconds: float
    spread: float
    degrees: int
    searches: int
    """Recorded ones that it was taken from."""
    courses: tuple[np.ndarray, ...] = ()
    """Of each of those (trials to come,): seconds of every trial."""

    @property
    def middle(self) -> float:
        return math.exp(self.log_seconds)

    @property
    def low(self) -> float:
        return math.exp(self.log_seconds - _t90(self.degrees) * self.spread)

    @property
    def high(self) -> float:
        return math.exp(self.log_seconds + _t90(self.degrees) * self.spread)


def work_ahead(
    kind: Kind,
    epoch_s: Sequence[float],
    recorded: Sequence[RecordedSearch],
    *,
    trials: int,
    seen_s: Sequence[float] = (),
) -> WorkAhead | None:
    """Of the trials of a search that are to come.

    Args:
        kind: of the search.
        epoch_s: seconds an epoch of every size of its space.
        recorded: searches to go by, itself not among them.
        trials: of the search in all.
        seen_s: seconds that those trained that have ended, in their order.

    Returns:
        None where nothing is to come, or nothing is recorded.
    """
    done = len(seen_s)
    if done >= trials:
        return None
    alike, known = _alike(kind, recorded, done)
    if not alike:
        return None
    carried = [
        _as_long_as(each.seconds(epoch_s, kind.training, kind.learning_rates), trials)
        for each in alike
    ]
    rest = np.log([float(each[done:].sum()) for each in carried])
    if kind.all_over or not known:
        found = _by_its_own(rest, np.asarray(seen_s), trials)
    elif not done:
        own = float(rest.var(ddof=1))
        found = _pooled(float(rest.mean()), own, len(rest) - 1, 1 + 1 / len(rest), USUAL_SPREAD)
    else:
        before = np.log([float(each[:done].mean()) for each in carried])
        now = math.log(max(float(np.mean(seen_s)), 1e-9))
        slope, own, more = _line(before, rest, now)
        middle = float(rest.mean()) + slope * (now - float(before.mean()))
        usual = SPREAD_SEEN if kind.repeats else SPREAD_SEEN_ONCE
        found = _pooled(middle, own, len(rest) - 2, more, usual)
    middle, spread, degrees = found
    return WorkAhead(
        log_seconds=middle,
        spread=spread,
        degrees=degrees,
        searches=len(alike),
        courses=tuple(each[done:] for each in carried),
    )


def _pooled(
    middle: float, own: float, degrees: int, more: float, usual: float
) -> tuple[float, float, int]:
    """With the usual spread beside that of these few searches; `more` for what is foretold."""
    whole = degrees + USUAL_DEGREES
    pooled = (degrees * own + USUAL_DEGREES * usual**2) / whole
    return middle, math.sqrt(pooled * more), whole


def _by_its_own(rest: np.ndarray, seen_s: np.ndarray, trials: int) -> tuple[float, float, int]:
    """Of a search whose trials are alike from the first to the last, or whose kind was hardly
    recorded: what the recorded ones say, and the mean of its own trials, by how sure each is.
    """
    middle, spread = float(rest.mean()), UNLIKE_SPREAD
    done = len(seen_s)
    if done < LEAST_ALIKE:
        return middle, spread, USUAL_DEGREES
    mean = max(float(seen_s.mean()), 1e-9)
    vary = max(float(seen_s.std(ddof=1)) / mean, LEAST_VARY)
    mine = vary * math.sqrt(1 / done + 1 / (trials - done))
    weight = spread**2 / (spread**2 + mine**2 + DRIFT**2)
    by_mean = math.log(mean * (trials - done))
    both = math.sqrt(weight * mine**2 + DRIFT**2)
    return (1 - weight) * middle + weight * by_mean, both, USUAL_DEGREES + done


def _alike(
    kind: Kind, recorded: Sequence[RecordedSearch], done: int
) -> tuple[list[RecordedSearch], bool]:
    """The searches to go by, and whether they are of the kind."""
    long = [
        each
        for each in recorded
        if len(each) > max(LEAST_LENGTH, 1.2 * done)
        and each.max_epochs >= 0.5 * kind.training.max_epochs
    ]
    same = [
        each for each in long if each.all_over == kind.all_over and each.prunes_like(kind.prune)
    ]
    same_sampler = [each for each in same if each.repeats == kind.repeats]
    if len(same_sampler) >= LEAST_ALIKE:
        same = same_sampler
    own = [each for each in same if each.variant == kind.variant]
    if len(own) >= OWN_VARIANT:
        return own, True
    if len(same) >= LEAST_ALIKE:
        return same, True
    others = [each for each in long if each.all_over == kind.all_over] or long
    return others or list(recorded), False


def _as_long_as(seconds: np.ndarray, trials: int) -> np.ndarray:
    """The first so many; a shorter search goes on as its second half was in the mean."""
    if len(seconds) >= trials:
        return seconds[:trials]
    more = np.full(trials - len(seconds), float(seconds[len(seconds) // 2 :].mean()))
    return np.concatenate([seconds, more])


def _line(before: np.ndarray, rest: np.ndarray, now: float) -> tuple[float, float, float]:
    """Slope of a line through what came before and after; the variance around it, and by how much
    that grows where `now` lies.
    """
    x, y = before - before.mean(), rest - rest.mean()
    slope = min(max(float(x @ y) / (float(x @ x) + HELD_BACK), 0.0), 1.0)
    left = y - slope * x
    away = (now - float(before.mean())) ** 2 / (float(x @ x) + 4 * HELD_BACK)
    return slope, float(left @ left) / (len(rest) - 2), 1 + 1 / len(rest) + away


def _t90(degrees: int) -> float:
    """The 90 % quantile of Student's t, to a thousandth from 4 degrees on (Cornish and Fisher)."""
    z, n = _Z90, max(degrees, 1)
    first = (z**3 + z) / (4 * n)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    return z + first + second
