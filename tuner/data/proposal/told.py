"""What a person said of a file, and what is guessed where nobody said it."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "none"
"""The answer that there is no such column, or no time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Answers; None where there is none yet."""

    header: str | None = None
    """"yes" or "no"."""
    time_column: str | None = None
    time_format: str | None = None
    id_column: str | None = None
    timezone: str | None = None
    frequency: str | None = None
    gaps: str | None = None
    targets: tuple[str, ...] | None = None
    horizon: int | None = None
    input_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What was taken where the file leaves it open."""

    key: str
    """The field of `Told` that would settle it."""
    value: str
    question: str
    why: str
    """What speaks for it, or what it means: for the comment in the file."""
    choices: tuple[str, ...] = ()
    """All answers; empty where any text is one."""
