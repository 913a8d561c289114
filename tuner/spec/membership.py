"""Which search of which group a study is, and where its seeds come from: fixed when it is made, and
no part of what it is.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.config import MANY, MOST_SEARCHES
from tuner.files.plain import LARGEST, Label, Strict
from tuner.spec.seeds import FIRST_DRAW, root_of

ATTRIBUTE = "tuner_search"
"""What Optuna's tables call it, which have it with the other attributes of a study."""


class Membership(Strict):
    """A study's place, as it is stored with it."""

    group: Label
    search: Annotated[int, Field(ge=1, le=MOST_SEARCHES)] = 1
    """Its number in the group, from 1."""
    seed_root: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    """None of an exported study from before there were roots."""
    draw: Annotated[int, Field(ge=FIRST_DRAW, le=MANY)] = FIRST_DRAW
    """Which draw of all seeds it is of: two draws of one name share none."""

    @staticmethod
    def of_new(
        name: str, *, group: str | None = None, search: int = 1, draw: int = FIRST_DRAW
    ) -> Membership:
        """That of a study which is made as `name`, by itself where no group is named."""
        root = root_of(name, draw)
        return Membership(group=group or name, search=search, seed_root=root, draw=draw)

    def under(self, name: str) -> Membership:
        """Of the same seeds, by itself: what goes on under another `name` is no search of the group
        more.
        """
        return Membership(group=name, seed_root=self.seed_root, draw=self.draw)


def name_of_search(group: str, number: int) -> str:
    """What search `number` of a group is called when it is made; the first as the group is."""
    return group if number == 1 else f"{group}-{number}"
