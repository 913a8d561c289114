"""What one epoch of a training came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One finished epoch: losses per window on scaled values, and the clock after validation."""

    epoch: int
    """Counted from 1."""
    train_loss: float
    """Mean over the windows trained on, each under the weights and the dropout it met."""
    val_loss: float | None
    """Exact mean over all validation windows, under the weights at the end of the epoch; None where
    the epoch was not validated."""
    learning_rate: float
    """What this epoch was trained with."""
    elapsed_s: float
    """`wall_clock_s` so far."""
