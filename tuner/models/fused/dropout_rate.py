"""The rate of dropout that the fused kernels realise: the nearest multiple of 2^-16."""

from __future__ import annotations

LEVELS = 1 << 16
"""Of the random number that decides on an element."""


def dropped_of_levels(rate: float) -> int:
    """How many of the levels drop an element; some always keep it."""
    return min(round(rate * LEVELS), LEVELS - 1)


def drops_out(rate: float) -> bool:
    """Whether anything is dropped at all: where not, the kernels know no masks."""
    return dropped_of_levels(rate) > 0
