"""Two variants held against each other by whole searches: each search gives one time, or none.

What a search finds is luck, too, and seeds cannot average that away. So a search is the unit: two
variants differ where the times of their searches do. "Not reached" is a result, which ranks last.

One interval is printed, and the claim follows from it: a difference is claimed exactly where it
leaves out 1. It is what the exact Mann-Whitney test does not reject at `RETUNE_LEVEL`. That level
is chosen for what the interval is to say: were both variants searched again, as often as now, the
new ratio would lie in it in about nine cases of ten. Two estimates of equal error differ by sqrt(2)
times what each is off by, and 1.645 sqrt(2) standard errors are 98 %.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.verdict.stats.intervals import CONFIDENCE, Interval, t_beyond

Array = np.ndarray[Any, Any]

RETUNE_LEVEL = 0.02
"""The test's level, whose interval another retune of both falls into in about nine cases of ten."""
ALPHA = 0.05
"""The chance of any false claim over all registered comparisons."""
NOT_REACHED = math.inf
"""In place of a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The times of variant `a` over those of `b`.

    `ratio` is the Hodges-Lehmann estimate: the median of the ratios of all pairs of searches, 0
    where mostly only `a` reached, infinite where mostly only `b` did, None where nobody did. `low`
    and `high` are what the test does not reject at `level`; `p` is the least level at which it
    rejects "no difference". `possible` says whether so few searches can reach the level at all.
    """

    a: str
    b: str
    searches: tuple[int, int]
    reached: tuple[int, int]
    ratio: float | None
    low: float
    high: float
    p: float
    level: float

    @property
    def claimed(self) -> bool:
        return not self.low <= 1 <= self.high

    @property
    def possible(self) -> bool:
        return least_p(*self.searches) <= self.level


def compare_searches(
    a: Sequence[float],
    b: Sequence[float],
    *,
    names: tuple[str, str] = ("a", "b"),
    level: float = RETUNE_LEVEL,
) -> Between:
    """Hold the times of one variant's searches against those of another; `NOT_REACHED` ranks last.

    Raises:
        ValueError: a variant without a search.
    """
    if not len(a) or not len(b):
        raise ValueError("each variant needs a search at least")
    x, y = np.log(np.asarray(a, dtype=float)), np.log(np.asarray(b, dtype=float))
    shifts = _Shifts(x, y)
    low, high = shifts.kept(level)
    shift = shifts.estimate()
    return Between(
        a=names[0],
        b=names[1],
        searches=(len(x), len(y)),
        reached=(int(np.isfinite(x).sum()), int(np.isfinite(y).sum())),
        ratio=None if math.isnan(shift) else math.exp(shift),
        low=math.exp(low),
        high=math.exp(high),
        p=shifts.p(),
        level=level,
    )


def compare_with_reference(
    reference: str, searches: Mapping[str, Sequence[float]]
) -> tuple[Between, ...]:
    """Each other variant against the reference, in their order: the registered comparisons.

    Holm's steps keep the chance of any false claim at `ALPHA`; no level is above `RETUNE_LEVEL`,
    which an interval needs to say what another retune would give.
    """
    others = [name for name in searches if name != reference]
    times = {name: list(searches[name]) for name in others}

    def against(name: str, level: float) -> Between:
        return compare_searches(
            times[name], searches[reference], names=(name, reference), level=level
        )

    first = {name: against(name, RETUNE_LEVEL) for name in others}
    found: dict[str, Between] = {}
    level, going_on = 0.0, True
    for rank, name in enumerate(sorted(others, key=lambda name: first[name].p)):
        if going_on:
            level = min(RETUNE_LEVEL, ALPHA / (len(others) - rank))
        found[name] = against(name, level)
        going_on = going_on and found[name].claimed
    return tuple(found[name] for name in others)


def least_p(a: int, b: int) -> float:
    """The least p that so many searches of each can give: all of one before all of the other."""
    return min(1.0, 2 / math.comb(a + b, a))


def least_searches(comparisons: int) -> int:
    """How many searches each variant needs before any difference can be claimed."""
    level = min(RETUNE_LEVEL, ALPHA / comparisons)
    needed = 1
    while least_p(needed, needed) > level:
        needed += 1
    return needed


class _Shifts:
    """By how much the logarithms `x` may truly lie above `y`, by the rank sum of `x - shift`.

    Between two neighbouring differences of a pair the ranks do not change: the test is asked once
    for each such stretch.
    """

    def __init__(self, x: Array, y: Array) -> None:
        self._x, self._y = x, y
        with np.errstate(invalid="ignore"):
            differences = (x[:, None] - y[None, :]).ravel()
        # Where neither reached, neither is above the other: half a pair each way.
        none = np.isnan(differences)
        halves = [np.full(none.sum(), -np.inf), np.full(none.sum(), np.inf)]
        self._pairs = np.sort(np.concatenate([differences[~none], differences[~none], *halves]))
        # What differs by rounding alone is equal.
        edges = np.unique(differences[np.isfinite(differences)].round(12))
        ends = np.concatenate([[-np.inf], edges, [np.inf]])
        if len(edges) == len(x) * len(y):  # nothing is equal: each stretch is one pair further
            tails = _tails_without_ties(len(x), len(y))
        else:
            tails = np.array([self._tails(shift) for shift in _between(edges)])
        # Equal times within a variant may make a tail rise where it should fall: what is kept is
        # one interval all the same.
        self._less = np.maximum.accumulate(tails[::-1, 0])[::-1]
        self._more = np.maximum.accumulate(tails[:, 1])
        self._low, self._high = ends[:-1], ends[1:]

    def estimate(self) -> float:
        """Hodges and Lehmann's: as many pairs above as below."""
        n = len(self._pairs)
        low, high = self._pairs[n // 2 - 1], self._pairs[n // 2]
        if math.isinf(low) and math.isinf(high):
            return float(low) if low == high else math.nan
        if math.isinf(low) or math.isinf(high):
            return float(high if math.isinf(low) else low)
        return float((low + high) / 2)

    def kept(self, level: float) -> tuple[float, float]:
        """From which to which shift the test does not reject."""
        from_here = np.flatnonzero(2 * self._more > level)
        to_here = np.flatnonzero(2 * self._less > level)
        if not len(from_here):
            return math.inf, math.inf
        if not len(to_here):
            return -math.inf, -math.inf
        return float(self._low[from_here[0]]), float(self._high[to_here[-1]])

    def p(self) -> float:
        """Of no shift; where a pair is equal, of the stretch beside it that says less."""
        beside = (self._low <= 0) & (self._high >= 0)
        less, more = self._less[beside].max(), self._more[beside].max()
        return float(min(1.0, 2 * min(less, more)))

    def _tails(self, shift: float) -> tuple[float, float]:
        """How likely a rank sum of `x - shift` is as low as this one, or as high, if the labels
        mean nothing.
        """
        ranks = _doubled_midranks(np.concatenate([self._x - shift, self._y]))
        return _tails_of(tuple(ranks.tolist()), len(self._x))


@functools.lru_cache(maxsize=64)
def _tails_without_ties(a: int, b: int) -> Array:
    """By how many pairs have `a` above, from all to none: (pairs + 1, 2)."""
    first = a * (a + 1)  # the doubled ranks of the lowest `a`
    ways = _ways(tuple(range(2, 2 * (a + b) + 1, 2)), a)[first::2]
    total = math.comb(a + b, a)
    less = [sum(ways[: above + 1]) / total for above in range(a * b, -1, -1)]
    more = [sum(ways[above:]) / total for above in range(a * b, -1, -1)]
    return np.column_stack([less, more])


def _between(edges: Array) -> Array:
    """A shift within each stretch between neighbouring edges."""
    if not len(edges):
        return np.zeros(1)
    inner = (edges[1:] + edges[:-1]) / 2
    return np.concatenate([[edges[0] - 1], inner, [edges[-1] + 1]])


def _doubled_midranks(values: Array) -> Array:
    """Twice the rank of each of `values`, equal ones sharing the mean of theirs."""
    below = (values[:, None] > values[None, :]).sum(axis=1)
    equal = (values[:, None] == values[None, :]).sum(axis=1)
    doubled: Array = 2 * below + equal + 1
    return doubled


def _tails_of(ranks: tuple[int, ...], size: int) -> tuple[float, float]:
    """Of all ways to choose `size` of these doubled ranks: the share whose sum is at most that of
    the first `size`, and the share whose sum is at least that.
    """
    ways = _ways(tuple(sorted(ranks)), size)
    sum_ = sum(ranks[:size])
    total = math.comb(len(ranks), size)
    return sum(ways[: sum_ + 1]) / total, sum(ways[sum_:]) / total


@functools.lru_cache(maxsize=512)
def _ways(ranks: tuple[int, ...], size: int) -> list[int]:
    """In how many ways `size` of `ranks` add up to each sum: exact, one rank after the other."""
    ways = np.zeros((size + 1, sum(ranks[-size:]) + 1), dtype=object)  # no machine number overflows
    ways[0, 0] = 1
    for rank in ranks:
        for count in range(size, 0, -1):
            ways[count, rank:] += ways[count - 1, : ways.shape[1] - rank]
    return list(ways[size])


# What one more search would come to, after several that were alike.


PREDICTED = 0.9
"""How often one more draw lies in its interval."""
LEAST_DRAWS = 3
"""Two draws say next to nothing of how far the third one is off."""


def chance_at_least(successes: int, draws: int) -> float:
    """Below what chance of a success so many of so many draws are too lucky, at `CONFIDENCE`."""
    from scipy.special import betaincinv

    if successes == 0:
        return 0.0
    return float(betaincinv(successes, draws - successes + 1, 1 - CONFIDENCE))


def next_draw(values: Sequence[float]) -> Interval | None:
    """Where one more draw beside these positive `values` (n,) lies in `PREDICTED` of all cases,
    around their geometric mean; None for fewer than `LEAST_DRAWS`, and where one is 0 or infinite.
    """
    n = len(values)
    if n < LEAST_DRAWS or not all(0 < value < math.inf for value in values):
        return None
    logs = np.log(np.sort(np.asarray(values, dtype=float)))
    middle = float(logs.mean())
    wide = float(logs.std(ddof=1)) * math.sqrt(1 + 1 / n) * t_beyond((1 - PREDICTED) / 2, n - 1)
    return Interval(math.exp(middle), math.exp(middle - wide), math.exp(middle + wide), n)
