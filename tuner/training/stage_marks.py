"""The stages of an epoch, and the hook that is told where one ends.

`tuner profile` puts a recorder in the hook's place. Everybody else has `unmarked`, which does
nothing: a step that is captured without a recorder holds nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Stage(StrEnum):
    """What an epoch's time goes into, in the order of tables."""

    DATA = "data"
    """Gathering a batch, or waiting for whoever does."""
    TRANSFER = "transfer"
    """Copies from the host to the device."""
    FORWARD = "forward"
    """The network's forecast and its loss."""
    BACKWARD = "backward"
    OPTIMISER = "optimiser"
    """Clipping included, and emptying the gradients."""
    VALIDATION = "validation"
    BETWEEN = "between epochs"
    """The next permutation, and keeping the best weights."""
    OTHER = "other"
    """Adding up losses, asking whether to stop, Python between the stages."""


Mark = Callable[[Stage], None]
"""Told that the work of a stage is over, or launched: what came since the call before is its."""


def unmarked(stage: Stage) -> None:
    """Nobody records."""
