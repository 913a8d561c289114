"""`--max-gpu-hours`: which studies share the limit, and whether it ended the work."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tuner.spec.policy import UNSAID, PolicyChanges
from tuner.study.open import OpenStudy
from tuner.verdict.queue import hours_of, verifications_of


def share_gpu_hours(studies: Sequence[OpenStudy], said: PolicyChanges) -> None:
    """The studies of one launch share the limit that it names."""
    if said.max_gpu_s is UNSAID:
        return
    several = said.max_gpu_s is not None and len(studies) > 1
    names = tuple(each.name for each in studies) if several else ()
    for each in studies:
        policy = each.policy()
        if policy.gpu_shared != names:
            each.set_policy(dataclasses.replace(policy, gpu_shared=names))


def trials_unpaid(studies: Sequence[OpenStudy]) -> bool:
    """Whether a limit keeps trials of these studies from beginning."""
    return _is_over(studies) and any(_unfilled(each) for each in studies)


def runs_unpaid(studies: Sequence[OpenStudy]) -> bool:
    """Whether it keeps verification runs from beginning that are planned."""
    if not _is_over(studies):
        return False
    runs = verifications_of(studies).counts()
    return runs.finished < runs.budget


def _is_over(studies: Sequence[OpenStudy]) -> bool:
    hours = hours_of(studies)
    if hours is None:
        return False
    with hours.engine.connect() as connection:
        return hours.is_over(connection)


def _unfilled(study: OpenStudy) -> bool:
    counts = study.ledger.counts()
    return counts.finished < counts.budget and counts.little_left is None


def spent_in_words(studies: Sequence[OpenStudy]) -> str:
    """What a launch says that the limit ended."""
    hours = hours_of(studies)
    assert hours is not None, "there is a limit"
    spent = hours.spent_s() / 3600
    return (
        f"the {hours.seconds / 3600:g} device hours of {', '.join(hours.names)} are spent "
        f"({spent:.3g}; what is left pays for no more training); --max-gpu-hours says more"
    )
