"""What a field of a trial's record says of the thing it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto

from tuner.files.kinds import Kind


class OverSeeds(Enum):
    """What a thing becomes for a trial of several seeds, from what it was for each."""

    MEDIAN = auto()
    """Of counts, one that occurred."""
    MIN = auto()
    MAX = auto()
    ANY = auto()
    ALL = auto()
    FIRST = auto()
    LAST = auto()
    JOINED = auto()
    """The texts that are not empty."""


class In(Flag):
    """Where else a thing is kept or shown, beside the trial's own record."""

    NOWHERE = 0
    RUNS = auto()
    """In what is kept of each seed's run, where a trial has several."""
    TIMINGS = auto()
    """In what is kept of each repetition of a contaminated run."""
    PROVENANCE = auto()
    """In an exported configuration: how and where it was trained, and how far."""
    SECTION = auto()
    """In a section of `tuner trial` that speaks of it; the others are listed at its end."""
    NULL = auto()
    """A training records it also where it is nothing, as null."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a field says of the thing it holds."""

    kind: Kind
    over_seeds: OverSeeds
    kept: In
