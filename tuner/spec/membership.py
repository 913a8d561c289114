"""Which search of which group a study is, and where its seeds come from: fixed when it is made, and
no part of what it is.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from tuner.config import MANY, MOST_SEARCHES
from tuner.errors import StorageError
from tuner.files.plain import LARGEST, UNREADABLE, Strict, explained
from tuner.record import Recorded

# The seeds of trainings: they follow from the study's root, the trial's number, and which of the
# trial's trainings it is.


_WIDE = 1 << 62
"""In every root: it takes two words then, and no seed of the rule without a root is one with it."""


FIRST_DRAW = 1
"""Of all that nobody asked to be drawn anew."""


def drawn_as(name: str, draw: int) -> bytes:
    """What the seeds of a study called `name` are made of: of the first draw the name alone."""
    plain = name.encode("utf-8", "surrogatepass")
    return plain if draw == FIRST_DRAW else plain + b"\x00" + str(draw).encode()


def root_of(name: str, draw: int = FIRST_DRAW) -> int:
    """The root of a study that is created as `name`: the same name and `draw` give the same
    trainings, in any database; another draw gives others.
    """
    return _WIDE | int.from_bytes(hashlib.sha256(drawn_as(name, draw)).digest()[:7])


def seed_of_trial(number: int, repeat: int = 0, *, root: int | None) -> int:
    """The seed of training `repeat` of a trial.

    Without a root by the rule of studies that were made before there was one: by the trial's number
    alone.
    """
    parts = [number, repeat] if root is None else [root, number, repeat]
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def seeds_of(recorded: Recorded, number: int, *, repeats: int, root: int | None) -> list[int]:
    """The seeds of a trial's trainings, one for each of its `repeats`: as recorded, else by the
    rule.
    """
    runs = [recorded.seed] if repeats == 1 else [run.get("seed") for run in recorded.runs or ()]
    found: list[int] = []
    for repeat in range(repeats):
        seed = runs[repeat] if repeat < len(runs) else None
        if not isinstance(seed, int) or seed < 0:
            seed = seed_of_trial(number, repeat, root=root)
        found.append(seed)
    return found


ATTRIBUTE = "tuner_search"
"""What Optuna's tables call it, which have it with the other attributes of a study."""


class Membership(Strict):
    """A study's place, as it is stored with it."""

    group: Annotated[str, Field(min_length=1, max_length=512)]
    """Whatever it is called: who shows it makes it harmless."""
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


def stored_membership(name: str, stored: Any) -> Membership:
    """Its place in a group. Raises StorageError where it is another program's, or damaged."""
    try:
        return Membership.model_validate(stored, strict=True)
    except UNREADABLE as error:
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read ({ATTRIBUTE}: "
            f"{explained(error)}): which search of which group it is was written by another "
            "program, or is damaged; restore a backup, or start another study with --study NAME"
        ) from None
