"""Training seeds for verifications: those that nothing in the database has seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from tuner.errors import TunerError
from tuner.spec.seeds import FIRST_DRAW, seed_of_trial, seeds_of
from tuner.storage.database import Database
from tuner.storage.queue.runs import VerificationRun
from tuner.storage.queue.verifications import planned_seeds
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.results import read_results

_FRESH = 0x76657269
"""Tells the seeds of verifications from those of trials."""
_FRESH_OF_DRAW = 0x64726177
"""As well, and from those of the first draw."""


def new_seeds(studies: Sequence[OpenStudy], count: int) -> list[int]:
    """`count` training seeds that nothing in the database of these `studies` has seen, of the
    latest draw that one of them is of.
    """
    draw = max(each.membership.draw for each in studies)
    return fresh_seeds(count, seen_seeds(studies[0].database), draw=draw)


def fresh_seeds(count: int, used: Collection[int], *, draw: int = FIRST_DRAW) -> list[int]:
    """`count` training seeds, always the same ones of a `draw` but
    for those in `used`: configurations share them.
    """
    kind = [_FRESH] if draw == FIRST_DRAW else [_FRESH_OF_DRAW, draw]
    found: list[int] = []
    number = 0
    while len(found) < count:
        seed = int(np.random.SeedSequence([*kind, number]).generate_state(1)[0])
        if seed not in used and seed not in found:
            found.append(seed)
        number += 1
    return found


def seeds_to_verify_on(
    there: Iterable[VerificationRun], studies: Sequence[OpenStudy], count: int
) -> list[int]:
    """`count` seeds for a verification of the `studies`, given the runs that are planned already.

    A plan that was made for all of them together is gone on with, on its seeds. Whatever it lacks
    is fresh.
    """
    again = _planned_together(there, {each.study_id for each in studies})[:count]
    if len(again) == count:
        return again
    return again + new_seeds(studies, count - len(again))


def seen_seeds(database: Database) -> set[int]:
    """Every seed that something here was trained on or is to be: by the search of any study until
    its budget is filled, and by any verification.
    """
    seen = planned_seeds(database.engine)
    for name in list_studies(database):
        try:
            seen |= _of_search(open_study(database, name))
        except TunerError:  # of another version, or damaged: nobody can train it here
            continue
    return seen


def _of_search(study: OpenStudy) -> set[int]:
    repeats, root = study.definition.seeds_per_trial, study.membership.seed_root
    seen: set[int] = set()
    numbers = set(range(study.ledger.counts().budget))
    for record in read_results(study).records:
        recorded = record.recorded
        # Of a trial that was taken over from another study, the recorded ones are the ones.
        seen.update(seeds_of(recorded, record.number, repeats=repeats, root=root))
        seen.update(seed for seed in (recorded.seed, *(recorded.seeds or ())) if seed is not None)
        numbers.add(record.number)
    return seen | {
        seed_of_trial(n, repeat, root=root) for n in numbers for repeat in range(repeats)
    }


def _planned_together(runs: Iterable[VerificationRun], studies: Collection[int]) -> list[int]:
    """The seeds that every one of the studies has runs on, in the order of their plan."""
    by_seed: dict[int, set[int]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, set()).add(run.study_id)
    return [seed for seed, planned in by_seed.items() if studies and planned >= set(studies)]
