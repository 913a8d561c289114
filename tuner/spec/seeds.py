"""The seeds of trainings: they follow from the study's root, the trial's number, and which of the
trial's trainings it is.

So a retry is the same run, and two trials share no luck: of one study, or of two.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tuner.record import Recorded

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
