"""What a backend has to do for `fit`: the same mathematics, executed in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from tuner.config import Backend, StopReason
from tuner.training.model_state import Snapshot
from tuner.training.stage_marks import Mark

Poll = Callable[[], StopReason | None]
"""Asked after every step, on the host, not touching the device: a reason to stop, or None."""


@dataclass(frozen=True, slots=True)
class TrainedEpoch:
    """What one pass over the training windows came to; `fit` alone waits for `loss_sum`."""

    loss_sum: Tensor
    """(), float64: the sum of the losses of the windows trained on."""
    n_windows: int
    stopped: StopReason | None
    """Why the pass ended early; None when it was complete."""


class Engine(Protocol):
    """Owns the model's gradients and the optimiser. One engine serves one training at a time."""

    @property
    def backend(self) -> Backend:
        """Which one this is."""

    @property
    def fallback(self) -> str:
        """Why this one runs and not the one asked for, in one line; empty where it is that one."""

    @property
    def model(self) -> nn.Module:
        """The network being trained, on the data's device."""

    def warm_up(self) -> None:
        """Runs every kind of step and pass once, or captures or compiles it, and leaves no trace.

        Weights, buffers, gradients, optimiser state and random state are afterwards exactly what
        they were.
        """

    def mark_with(self, mark: Mark) -> None:
        """Before `warm_up`: have the stages of every training step told. A captured step tells them
        while it is captured, and never again.
        """

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        """Trains on the windows `order` (N,) names, in batches of which the last may be short."""

    def validation_loss(self) -> Tensor:
        """(), float64, on the device: the exact mean loss over all validation windows.

        The next call may write to the same tensor.
        """

    def snapshot(self) -> Snapshot:
        """A copy of the model as it is now, to be taken again after better epochs."""

    def state(self) -> dict[str, Tensor]:
        """Weights, buffers and optimiser state by name: the very tensors the next step changes."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """After `warm_up`, goes on from what `state` once was.

        Raises:
            ValueError: it is another network's; nothing was changed.
        """

    def close(self) -> None:
        """Gives back what the engine holds on the device beside the model."""
