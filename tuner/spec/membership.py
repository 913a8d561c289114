"""Which search of which group a study is, and where its seeds come from: fixed when it is made, and
no part of what it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from tuner.config import MANY, MOST_SEARCHES
from tuner.files.plain import LARGEST, Strict
from tuner.spec.seeds import FIRST_DRAW, root_of

ATTRIBUTE = "tuner_search"
"""What Optuna's tables call it, which have it with the other attributes of a study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A study's place. One that was made before there were groups is the only search of its own,
    and has no root.
    """

    group: str
    search: int = 1
    """Its number in the group, from 1."""
    seed_root: int | None = None
    draw: int = FIRST_DRAW
    """Which draw of all seeds it is of: two draws of one name share none."""

    @staticmethod
    def of_new(
        name: str, *, group: str | None = None, search: int = 1, draw: int = FIRST_DRAW
    ) -> Membership:
        """That of a study which is made as `name`, by itself where no group is named."""
        root = root_of(name, draw)
        return Membership(group=group or name, search=search, seed_root=root, draw=draw)

    @staticmethod
    def read(stored: Any, name: str) -> Membership:
        """What `as_dict` gave; where nothing was stored, that of a study called `name` from before.

        Raises:
            ValueError: it is something else.
        """
        if stored is None:
            return Membership(group=name)
        return Membership(**StoredMembership.model_validate(stored, strict=True).model_dump())

    def as_dict(self) -> dict[str, Any]:
        """Plain data, the stored form; the first draw is not written, as it was before there were
        others.
        """
        stored = dataclasses.asdict(self)
        if self.draw == FIRST_DRAW:
            del stored["draw"]
        return stored

    def under(self, name: str) -> Membership:
        """Of the same seeds, by itself: what goes on under another `name` is no search of the group
        more.
        """
        return Membership(group=name, seed_root=self.seed_root, draw=self.draw)


class StoredMembership(Strict):
    """A membership as others stored it."""

    group: Annotated[str, Field(min_length=1, max_length=512)]
    """Whatever it is called: who shows it makes it harmless."""
    search: Annotated[int, Field(ge=1, le=MOST_SEARCHES)]
    seed_root: Annotated[int, Field(ge=0, le=LARGEST)] | None
    draw: Annotated[int, Field(ge=FIRST_DRAW, le=MANY)] = FIRST_DRAW


def name_of_search(group: str, number: int) -> str:
    """What search `number` of a group is called when it is made; the first as the group is."""
    return group if number == 1 else f"{group}-{number}"
