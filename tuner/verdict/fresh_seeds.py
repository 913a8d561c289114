"""Training seeds for verifications: those that no search has used."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tuner.spec.seeds import seed_of_trial
from tuner.study.open import OpenStudy
from tuner.study.results import read_results

_FRESH = 0x76657269
"""Tells the seeds of verifications from those of trials."""


def fresh_seeds(count: int, used: Collection[int]) -> list[int]:
    """`count` training seeds, always the same ones but for those in `used`: configurations share
    them.
    """
    found: list[int] = []
    number = 0
    while len(found) < count:
        seed = int(np.random.SeedSequence([_FRESH, number]).generate_state(1)[0])
        if seed not in used and seed not in found:
            found.append(seed)
        number += 1
    return found


def used_seeds(opened: Sequence[OpenStudy]) -> set[int]:
    """Every seed that the search of these studies used, or will use until their budgets are
    filled.
    """
    used: set[int] = set()
    for each in opened:
        records = read_results(each).records
        for record in records:
            recorded = record.recorded
            used |= {seed for seed in (recorded.seed, *(recorded.seeds or ())) if seed is not None}
        trials = max(each.ledger.counts().budget, len(records))
        used |= {
            seed_of_trial(n, r)
            for n in range(trials)
            for r in range(each.definition.seeds_per_trial)
        }
    return used
