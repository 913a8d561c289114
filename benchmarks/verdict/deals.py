"""Simulated searches dealt into sets, as if each set were the searches of a variant: how often a
difference is claimed, and whether another retune agrees.

The sets of one deal are disjoint; deals of a truth share its searches. Under one truth any deal is
as likely as any other, whatever the searches came to, so the exact test keeps its level for each
pool of searches: the share of false claims needs no correction for that. What is found of a planted
difference, and how wide intervals are, hangs on the pool: the range of the truths is shown beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.verdict.stats.searches import (
    RETUNE_LEVEL,
    Between,
    compare_searches,
    compare_with_reference,
)

Times = Mapping[str, Sequence[float]]
"""Of each truth: what its retunes answer at the registered level, infinite where not reached."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of so many, with the interval of Clopper and Pearson, and by truth."""

    count: int
    of: int
    by_truth: Mapping[str, float]

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else math.nan

    def as_dict(self) -> dict[str, Any]:
        from scipy.stats import binomtest

        interval = binomtest(self.count, self.of).proportion_ci(method="exact") if self.of else None
        return {
            "count": self.count,
            "of": self.of,
            "share": self.share,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "by_truth": dict(self.by_truth),
        }


def shared(found: Mapping[str, Sequence[bool]]) -> Share:
    """The share of what is so, from what was found of each truth."""
    return Share(
        sum(sum(each) for each in found.values()),
        sum(len(each) for each in found.values()),
        {name: float(np.mean(each)) for name, each in found.items() if len(each)},
    )


def claims(
    times: Times, searches: int, deals: int, *, ratio: float = 1.0, level: float = RETUNE_LEVEL
) -> Share:
    """How often two sets are claimed to differ, the first one's times planted `ratio` times as long;
    of a planted difference, in the right direction.
    """
    return shared(
        {
            name: [_right(each, ratio) for each in _compared(pool, searches, deals, ratio, level)]
            for name, pool in times.items()
            if len(pool) >= 2 * searches
        }
    )


def family_claims(times: Times, searches: int, deals: int, *, labels: int = 5) -> Share:
    """How often anything is claimed of several sets against the first, where nothing differs."""
    found = {}
    for name, pool in times.items():
        if len(pool) < labels * searches:
            continue
        found[name] = [
            any(
                each.claimed
                for each in compare_with_reference(
                    "0", {str(label): mine for label, mine in enumerate(sets)}
                )
            )
            for sets in _sets(pool, labels, searches, deals)
        ]
    return shared(found)


def agreement(
    times: Times, searches: int, deals: int, *, ratio: float = 1.0, level: float = RETUNE_LEVEL
) -> tuple[Share, float]:
    """How often the ratio of another retune of both lies in the interval, and the median width of
    the interval, as its upper end over its lower.
    """
    inside: dict[str, list[bool]] = {}
    widths: list[float] = []
    for name, pool in times.items():
        if len(pool) < 4 * searches:
            continue
        inside[name] = []
        for a, b, again_a, again_b in _sets(pool, 4, searches, deals):
            one = _two(a, b, ratio, level)
            other = _two(again_a, again_b, ratio, level)
            if other.ratio is None:
                continue
            inside[name].append(one.low <= other.ratio <= one.high)
            widths.append(one.high / one.low if one.low > 0 else math.inf)
    return shared(inside), float(np.median(widths)) if widths else math.nan


def spread(times: Times) -> float:
    """The standard deviation of the logarithm of what searches of one truth answer, over those that
    reached.
    """
    logs = [np.log([t for t in pool if math.isfinite(t)]) for pool in times.values()]
    return float(np.sqrt(np.mean([each.var(ddof=1) for each in logs if len(each) > 1])))


def _right(found: Between, ratio: float) -> bool:
    return found.claimed and (ratio == 1.0 or found.low > 1)


def _compared(
    pool: Sequence[float], searches: int, deals: int, ratio: float, level: float
) -> Iterator[Between]:
    for a, b in _sets(pool, 2, searches, deals):
        yield _two(a, b, ratio, level)


def _two(a: Sequence[float], b: Sequence[float], ratio: float, level: float) -> Between:
    return compare_searches([ratio * t for t in a], b, level=level)


def _sets(
    pool: Sequence[float], sets: int, searches: int, deals: int
) -> Iterator[list[list[float]]]:
    """So many disjoint sets of so many searches, dealt anew each time; always the same deals."""
    random = np.random.default_rng([len(pool), sets, searches])
    for _ in range(deals):
        order = random.permutation(len(pool))[: sets * searches]
        yield [[pool[i] for i in mine] for mine in order.reshape(sets, searches)]
