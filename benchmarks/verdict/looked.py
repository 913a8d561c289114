"""A confirmation with its looks, on figures that are drawn: as the product goes on and stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.spec.margin import Question, looks_of
from tuner.storage.queue.verifications import StoredPlan
from tuner.verdict.confirmation import Looks
from tuner.verdict.stats.noninferiority import p_below

Array = np.ndarray[Any, Any]
P = Callable[[int], float]
"""Of a test on so many of the seeds."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Whether a test claims, and after how many seeds it ends."""

    claimed: bool
    seeds: int


def looks(seeds: int) -> Looks:
    return Looks.of(StoredPlan(looks=looks_of(seeds)), seeds)


def looked(p_after: P, design: Looks, question: Question) -> Looked:
    """One test by itself."""
    for blocks, level in design.reached(design.blocks[-1], question):
        p = p_after(blocks)
        if p < level or design.is_hopeless(p, blocks):
            return Looked(p < level, blocks)
    return Looked(False, design.blocks[-1])


def in_order(tests: Sequence[P], design: Looks, question: Question) -> tuple[int, list[int]]:
    """How many are claimed, one after the other, and after how many seeds each ends: what comes
    after one that has no hope ends with that.
    """
    found, until = [looked(each, design, question) for each in tests], design.blocks[-1]
    ends, claimed, all_so_far = [], 0, True
    for each in found:
        until = until if each.claimed else min(until, each.seeds)
        ends.append(min(each.seeds, until))
        all_so_far = all_so_far and each.claimed
        claimed += all_so_far
    return claimed, ends


def paired(mine: Array, default: Array, margin: float) -> P:
    """On the same seeds: (seeds,) each."""
    return lambda blocks: p_below(mine[:blocks] - (1 + margin) * default[:blocks])
