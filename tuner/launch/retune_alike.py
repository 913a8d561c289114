"""Searches that are held against each other begin alike: one that is added later, as those that
are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.settings import differing
from tuner.spec.policy import SearchPolicy
from tuner.study.group import refuse_other_draw
from tuner.study.open import OpenStudy

_OF_THE_RETUNE = ("margin", "search_s", "max_gpu_s", "gpu_shared")
"""Of a policy, what a retune registers, or has shared out; searches begin alike in all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """What new searches begin with, where nothing else is said."""

    draw: int | None
    """None: nobody has said one, and each group goes on with its own."""
    policy: SearchPolicy | None
    """None: all are new, or none is."""

    def said_with(self, said: SearchPolicy) -> SearchPolicy:
        """What was said, and what those that are there have."""
        if self.policy is None:
            return said
        own = {}
        for name in differing(SearchPolicy(), self.policy):
            if name not in _OF_THE_RETUNE and not said.says(name):
                own[name] = getattr(self.policy, name)
        return said.but(**own)


NOTHING_THERE = Alike(draw=None, policy=None)


def alike(groups: Sequence[Sequence[OpenStudy]], said_draw: int | None) -> Alike:
    """For the searches of these groups, of which some may be empty yet.

    Raises:
        UsageError: another draw was said than one of them is of.
    """
    there = [study for group in groups for study in group]
    for study in there:
        refuse_other_draw(study.name, study.membership, said_draw)
    if all(groups) or not there:
        return Alike(draw=said_draw, policy=None)
    return Alike(draw=there[0].membership.draw, policy=there[0].policy())
