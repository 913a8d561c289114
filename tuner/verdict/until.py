"""Whether a search may stop by itself: what more runs of what it tried could still save is at most
so much. What it has not tried is not in that (`tuner.verdict.left_to_gain`).
"""

from __future__ import annotations

import math

from tuner.storage.records import LittleLeft
from tuner.study.open import OpenStudy
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.same_quality import answer_of

LEAST_TRIALS = 200
"""Before, so little was tried that what it leaves to gain says little (benchmarks/verdict/until.md,
docs/decisions/0027-when-a-search-stops-by-itself.md)."""
LEAST_MORE, MORE_SHARE = 10, 0.1
"""Trials between two looks: so many, or this share of those that are there."""


def next_look(trials: int) -> int:
    """With how many finished trials a search is looked at that was looked at with so many, or not
    yet at all (0).
    """
    if trials < LEAST_TRIALS:
        return LEAST_TRIALS
    return trials + max(LEAST_MORE, math.ceil(MORE_SHARE * trials))


def little_left(study: StudySnapshot) -> LittleLeft | None:
    """What is left to gain, where that is at most what the study's `until` asks for.

    None where nobody asked, with fewer than `LEAST_TRIALS`, where nothing can be said yet, where
    the default has not converged, and where it stands: as long as nothing better is known, that
    more runs of the worse would not help is no reason to stop.
    """
    until = study.policy.until
    if until is None or study.finished < LEAST_TRIALS:
        return None
    answer = answer_of(study)
    if isinstance(answer, str) or answer.left is None or answer.default_stands:
        return None
    if answer.cut_at is not None:
        return None
    if answer.left.at_most > until:
        return None
    return LittleLeft(until=until, at_most=answer.left.at_most, trials=study.finished)


def stop_if_little_left(opened: OpenStudy) -> LittleLeft | None:
    """Look at a study, and stop its search where it is to stop by now; what was found then."""
    found = little_left(snapshot(opened))
    if found is not None and opened.ledger.stop(found):
        return found
    return None
