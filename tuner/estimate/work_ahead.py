"""How long the trials of a search will train: a distribution before the first one, and of what is
left once some have ended.

Each recorded search, carried over to the sizes and settings at hand, is one answer. Their mean
logarithm is the middle, and those of the same variant shift it. What a search that has begun took
so far, beside what the recorded ones took to that point, shifts it by as much as it did among
these. How far it may be off is known by replays (benchmarks/estimate), for each kind of search:
what the few recorded ones that a search is foretold from differ by says no more of it than that.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.config import TrainingSettings
from tuner.estimate.cost_model import Foretold

# How many epochs the trials of recorded searches took, and of which sizes: the table beside this
# file, which benchmarks/estimate/recorded.py makes from the committed exports.


TABLE = Path(__file__).with_name("recorded_searches.json.gz")
AS_RECORDED = (
    "name", "variant", "repeats", "prune", "pruned_share", "max_epochs", "patience", "default_cut",
)  # fmt: skip
SHARE_IN_RANGE = 0.5
"""Of its trials at least so many must lie in the range of learning rates, or all of them count."""
SPREAD_ALL_OVER = ("random", "qmc")
"""Samplers that never turn to where trainings are short."""
HARDLY = 0.05
"""Of a search's seconds, for trials that were ended early."""


@dataclass(frozen=True, slots=True)
class SpaceCosts:
    """Seconds an epoch of every size of a space, and of its default."""

    sizes: Sequence[float]
    default: float | None = None
    """None: nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSearch:
    """One search as it was recorded; arrays are (trials,), in the order of the trials."""

    name: str
    variant: str
    all_over: bool
    """Its sampler chose from the whole space to the end."""
    repeats: bool
    """It ran configurations again, on other seeds."""
    prune: bool
    pruned_share: float
    """Of its seconds, for trials that were ended early."""
    max_epochs: int
    patience: int
    epochs: np.ndarray
    """As many as each trial had, a pruned one too; a part of one counts as a part."""
    cost_share: np.ndarray
    """Which share of all sizes of its space cost less an epoch than the trial's, which counts as
    half of one."""
    learning_rate: np.ndarray
    of_default: np.ndarray
    """Whether it ran its search's default."""
    default_cut: bool = False
    """The limit of epochs cut its default off."""

    def __len__(self) -> int:
        return len(self.epochs)

    def seconds(
        self, costs: SpaceCosts, training: TrainingSettings, learning_rates: tuple[float, float]
    ) -> np.ndarray:
        """(trials,): what its trials would take where the sizes' epochs cost this, under these
        settings and in this range of learning rates.
        """
        epochs = self._epochs_under(training)
        low, high = learning_rates
        inside = (self.learning_rate >= low * 0.999) & (self.learning_rate <= high * 1.001)
        kept = inside if inside.mean() >= SHARE_IN_RANGE else np.ones_like(inside)
        # Shares are of those that cost less and half of the size itself: Hazen's way inverts that.
        epoch = np.quantile(np.asarray(costs.sizes), self.cost_share[kept], method="hazen")
        if costs.default is not None:
            mine = self.of_default[kept]
            epoch[mine] = np.sqrt(epoch[mine] * costs.default)
        found: np.ndarray = epochs[kept] * epoch
        return found

    def default_is_cut(self, training: TrainingSettings) -> bool:
        """Whether these settings' limit of epochs would cut its default off, or its own one did."""
        mine = self._epochs_under(training)[self.of_default]
        at_the_limit = bool(len(mine)) and bool((mine >= training.max_epochs).all())
        return self.default_cut or at_the_limit

    def _epochs_under(self, training: TrainingSettings) -> np.ndarray:
        """(trials,): a training that ended by early stopping had so many epochs to its best as it
        had without its patience.
        """
        epochs = self.epochs.copy()
        by_itself = (epochs > self.patience) & (epochs < self.max_epochs - 0.5)
        epochs[by_itself] += training.patience - self.patience
        found: np.ndarray = np.clip(epochs, 1.0, training.max_epochs)
        return found

    def prunes_like(self, prune: bool) -> bool:
        """Whether its trials ran as long as those of a search that prunes, or does not: also where
        it might have, and hardly did.
        """
        return self.prune if prune else not self.prune or self.pruned_share <= HARDLY


@functools.cache
def recorded_searches() -> tuple[RecordedSearch, ...]:
    """All that are committed."""
    rows = json.loads(gzip.decompress(TABLE.read_bytes()))
    found = []
    for row in rows:
        trials = np.array(row["trials"], dtype=float)
        of_default = np.isin(np.arange(len(trials)), row["of_default"])
        found.append(
            RecordedSearch(
                **{name: row[name] for name in AS_RECORDED},
                all_over=row["sampler"] in SPREAD_ALL_OVER,
                epochs=trials[:, 0],
                cost_share=trials[:, 1],
                learning_rate=trials[:, 2],
                of_default=of_default,
            )
        )
    return tuple(found)


LEAST_ALIKE = 3
"""Fewer recorded searches of a kind are too few: then all kinds count, and the range is wide."""
AS_MUCH = 1.0
"""So many searches of the same variant say as much of it as those of all variants do."""
LEAST_LENGTH = 30
REPEATS, ONCE = (0.16, 0.175), (0.2, 0.38)
"""How far a search may be off, of the logarithm: before its first trial, and what is left of one
that has begun, however many trials those are. More where nothing is run again: what is repeated
takes seconds that are known by then."""
ONE_TRIAL = 0.6
"""How far one trial may be off beside that: of few that are left their mean is not the usual one's.
"""
UNLIKE_SPREAD = 0.5
"""Where it chooses all over the space, or recorded searches of the kind are too few."""
DRIFT = 0.27
"""Of the later trials of such a search against the first ones: pruning, and luck."""
HELD_BACK = 0.05
LEAST_VARY = 0.85
"""Between the trials of a search all over a space: what few trials show is often too little."""


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
    default_cut: bool = False
    """Its limit of epochs cuts its default off, as far as is known, which is after its first run.
    What it tries is then no shorter later on, but where the limit would cut off those of others,
    too: so it is not foretold from those that turn to what is fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkAhead:
    """Seconds of training that are left of a search, all trials together; its logarithm is taken as
    normal.
    """

    log_seconds: float
    spread: float
    searches: int
    """Recorded ones that it was taken from; 0: from its own trials alone."""
    courses: tuple[np.ndarray, ...] = ()
    """Of each of those (trials to come,): seconds of every trial."""

    @property
    def seconds(self) -> Foretold:
        return Foretold.around(self.log_seconds, self.spread)


def work_ahead(
    kind: Kind,
    costs: SpaceCosts,
    recorded: Sequence[RecordedSearch],
    *,
    trials: int,
    seen_s: Sequence[float] = (),
    unsure: float = 0.0,
) -> WorkAhead | None:
    """Of the trials of a search that are to come.

    Args:
        kind: of the search.
        costs: seconds an epoch of every size of its space.
        recorded: searches to go by, itself not among them.
        trials: of the search in all.
        seen_s: seconds that those trained that have ended, in their order.
        unsure: standard deviation of the logarithm of `costs`, of all sizes together.

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
        _as_long_as(each.seconds(costs, kind.training, kind.learning_rates), trials)
        for each in alike
    ]
    rest = np.log([float(each[done:].sum()) for each in carried])
    alone = kind.default_cut and not known and done >= LEAST_ALIKE
    if kind.all_over or not known:
        prior = math.inf if alone else math.hypot(UNLIKE_SPREAD, unsure)
        middle, spread = _by_its_own(rest, prior, np.asarray(seen_s), trials)
    else:
        off, off_left = REPEATS if kind.repeats else ONCE
        middle, slope = float(rest.mean()), 0.0
        if done:
            before = np.log([float(each[:done].mean()) for each in carried])
            slope = _slope(before, rest)
            middle += slope * (math.log(max(float(np.mean(seen_s)), 1e-9)) - float(before.mean()))
            rest -= slope * (before - before.mean())
            off = math.hypot(off_left, ONE_TRIAL / math.sqrt(trials - done))
        middle += _of_own(rest, np.array([each.variant == kind.variant for each in alike]))
        off *= math.sqrt(1 + 1 / len(rest))
        # Where all sizes are dearer, so are those before: the slope has taken its part of it back.
        spread = math.hypot(off, (1 - slope) * unsure)
    return WorkAhead(
        log_seconds=middle,
        spread=spread,
        searches=0 if alone else len(alike),
        courses=tuple(each[done:] for each in carried),
    )


def _of_own(rest: np.ndarray, own: np.ndarray) -> float:
    """How much more those of the same variant took than all did, as far as so few can tell."""
    count = int(own.sum())
    if not count:
        return 0.0
    return count / (count + AS_MUCH) * float(rest[own].mean() - rest.mean())


def _by_its_own(
    rest: np.ndarray, prior: float, seen_s: np.ndarray, trials: int
) -> tuple[float, float]:
    """Of a search whose trials are alike from the first to the last, or whose kind was hardly
    recorded: what the recorded ones say, and the mean of its own trials, by how sure each is.

    `prior` is how far the recorded ones may be off; infinite: they say nothing of it.
    """
    middle = float(rest.mean())
    done = len(seen_s)
    if done < LEAST_ALIKE:
        return middle, prior
    mean = max(float(seen_s.mean()), 1e-9)
    vary = max(float(seen_s.std(ddof=1)) / mean, LEAST_VARY)
    mine = vary * math.sqrt(1 / done + 1 / (trials - done))
    weight = 1 / (1 + (mine**2 + DRIFT**2) / prior**2)
    by_mean = math.log(mean * (trials - done))
    both = math.sqrt(weight * mine**2 + DRIFT**2)
    return (1 - weight) * middle + weight * by_mean, both


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
    same = [each for each in long if _is_like(kind, each)]
    same_sampler = [each for each in same if each.repeats == kind.repeats]
    if len(same_sampler) >= LEAST_ALIKE:
        same = same_sampler
    if len(same) >= LEAST_ALIKE:
        return same, True
    others = [each for each in long if each.all_over == kind.all_over] or long
    return others or list(recorded), False


def _is_like(kind: Kind, search: RecordedSearch) -> bool:
    if search.all_over != kind.all_over or not search.prunes_like(kind.prune):
        return False
    if kind.default_cut:
        return search.default_is_cut(kind.training)
    return not search.default_cut


def _as_long_as(seconds: np.ndarray, trials: int) -> np.ndarray:
    """The first so many; a shorter search goes on as its second half was in the mean."""
    if len(seconds) >= trials:
        return seconds[:trials]
    more = np.full(trials - len(seconds), float(seconds[len(seconds) // 2 :].mean()))
    return np.concatenate([seconds, more])


def _slope(before: np.ndarray, rest: np.ndarray) -> float:
    """Of a line through what came before and what came after, of the recorded ones."""
    x, y = before - before.mean(), rest - rest.mean()
    return min(max(float(x @ y) / (float(x @ x) + HELD_BACK), 0.0), 1.0)
