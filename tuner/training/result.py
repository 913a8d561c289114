"""What a training leaves behind. The outcome is data: a diverged training returns one too."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from tuner.config import Backend, EpochRecord, Precision, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """How a training went. Times are in seconds; a figure that does not exist is NaN."""

    stopped_by: StopReason
    message: str
    """One line for a person: why it stopped."""
    epochs: int
    """Finished epochs, the length of `history`."""
    best_epoch: int
    """Epoch of the lowest validation loss, whose weights the model has; 0 where none finished."""
    best_val_loss: float
    wall_clock_s: float
    """Training and validation, first step to stop, after warm-up; device idle at both ends."""
    setup_s: float
    """Building the model and warming up."""
    time_to_best_s: float
    """The clock at the end of the best epoch."""
    total_s: float
    """Everything, from the call of `fit` to its return."""
    s_per_epoch: float
    """`wall_clock_s` per epoch's worth of training windows."""
    samples_per_s: float
    """Training windows per second of `wall_clock_s`."""
    peak_memory_bytes: int
    """CUDA: most memory allocated in this training. CPU: the process's peak resident memory."""
    n_parameters: int
    backend: Backend
    """The one that ran, never `auto`."""
    backend_fallback: str
    """Why that is not the one asked for, or that `auto` takes at these sizes; empty where it is."""
    precision: Precision
    history: tuple[EpochRecord, ...]
    model: nn.Module | None
    """In evaluation mode, with the best epoch's weights; None where memory ran out.

    On the data's device.
    """
    resumed_from: int = 0
    """The epoch after which it went on from a checkpoint; 0 where it ran in one go.

    Its clock is the sum all the same, set-up is its first attempt's, and so is what `total_s`
    counts.
    """
    timed_from: float = math.nan
    """When its clock started in this process, in seconds since 1970 on this machine's clock."""
    timed_until: float = math.nan
    """When it stopped."""
    context_lost: bool = False
    """Memory ran out in a capture that could not be ended: torch takes it to be still under way.

    The result stands, but only a fresh process can go on.
    """
