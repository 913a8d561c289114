"""`--max-gpu-hours`: which studies share the limit, and whether it ended the work."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.launch.progress import Notes
from tuner.spec.policy import UNSAID, PolicyChanges
from tuner.study.open import OpenStudy
from tuner.study.shared_hours import share_hours
from tuner.verdict.queue import limits_of, verifications_of


def share_gpu_hours(studies: Sequence[OpenStudy], said: PolicyChanges) -> list[str]:
    """The studies of one launch share the limit that it names, with all that shared one with any of
    them; a new search of a group that has one is paid by the same hours. Lines for the person who
    launches.
    """
    database, names = studies[0].database, [each.name for each in studies]
    if said.max_gpu_s is not UNSAID:
        together = share_hours(database, names, said.max_gpu_s)
        others = [name for name in together if name not in names]
        if not others:
            return []
        what = "is lifted for" if said.max_gpu_s is None else "holds for"
        theirs = ", ".join(name for name in names if name in together)
        why = f"an earlier launch had them share a limit with {theirs}"
        return [f"--max-gpu-hours {what} {', '.join(others)} as well: {why}"]
    for each in studies:
        policy = each.policy()
        if (
            policy.max_gpu_s is not None
            and policy.gpu_shared
            and each.name not in policy.gpu_shared
        ):
            share_hours(database, [each.name], policy.max_gpu_s)
    return []


def change_gpu_hours(studies: Sequence[OpenStudy], said: PolicyChanges, notes: Notes) -> None:
    """Give these studies the limit that was said, before anything of them is gone on with."""
    before = [each.policy() for each in studies]
    for line in share_gpu_hours(studies, said):
        notes.note(line)
    for each, was in zip(studies, before, strict=True):
        now = each.policy()
        if now.max_gpu_s != was.max_gpu_s:
            flags = was.flags()["max_gpu_s"], now.flags()["max_gpu_s"]
            notes.note(f"{each.name} changes from {flags[0]} to {flags[1]}")


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
