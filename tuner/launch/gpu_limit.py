"""`--max-gpu-hours`: changing the limit, and whether it ended the work."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.launch.outcome import Notes
from tuner.settings import changes
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import initialisation_lock
from tuner.study.open import OpenStudy
from tuner.study.shared_hours import share_launched_hours
from tuner.verdict.verified import limits_of, verifications_of


def change_gpu_hours(studies: Sequence[OpenStudy], said: SearchPolicy, notes: Notes) -> None:
    """Give these studies the limit that was said, before anything of them is gone on with."""
    with initialisation_lock(studies[0].database.address):  # a launch may be changing it, too
        before = [each.policy() for each in studies]
        lines = share_launched_hours(studies, said.said())
        after = [each.policy() for each in studies]
    for line in lines:
        notes.note(line)
    for each, was, now in zip(studies, before, after, strict=True):
        if now.max_gpu_s != was.max_gpu_s:
            notes.note(f"{each.name} changes from {changes(was, now)[0]}")


def trials_unpaid(studies: Sequence[OpenStudy]) -> bool:
    """Whether a limit keeps trials of these studies from beginning."""
    return any(each.ledger.counts().lacks_hours for each in studies)


def runs_unpaid(studies: Sequence[OpenStudy]) -> bool:
    """Whether it keeps verification runs from beginning that are planned."""
    return verifications_of(studies).counts().lacks_hours


def note_spent(studies: Sequence[OpenStudy], notes: Notes) -> None:
    """Say of the limits that are spent what they were, and what to give."""
    for hours in dict.fromkeys(limits_of(studies).values()):
        with hours.engine.connect() as connection:
            over = hours.is_over(connection)
        if over:
            notes.note(
                f"the {hours.seconds / 3600:g} device hours of {', '.join(hours.names)} are spent "
                f"({hours.spent_s() / 3600:.3g}; what is left pays for no more training); the same "
                "command with a larger --max-gpu-hours goes on"
            )
