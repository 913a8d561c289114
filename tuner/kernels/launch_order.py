"""How the kernels of a step follow each other, and what they work with."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tuner.kernels.plan import Plan, Weights

EARLIEST_CAPABILITY = (9, 0)
"""Of GPUs that start a kernel before the last one has ended."""

EARLIEST_TRITON = (3, 4)
"""That knows how to ask for it."""


class NoStream:
    """In a stream's place where kernels are only compiled: nothing runs beside anything."""


class Launching(NamedTuple):
    """What changes when things run, and no bit of what is computed.

    Attributes:
        early: a kernel is set up while the one before still runs: programmatic dependent launch.
        side: where a norm's gradients are summed beside those of products; the same stream captures
            and runs.
    """

    early: bool = False
    side: torch.cuda.Stream | NoStream | None = None

    def first(self) -> dict[str, Any]:
        """Options of a kernel that starts when all before it has ended, whatever that was.

        So does the first of every step: what a step only reads may be read by its kernels before
        they wait.
        """
        return {"early": self.early}

    def next(self) -> dict[str, Any]:
        """Options of a kernel that follows one of ours, with nothing between."""
        return {"early": self.early, "launch_pdl": True} if self.early else {"early": False}

    def branch(self) -> None:
        """What is launched on the side from now on follows all that was launched so far."""
        if isinstance(self.side, torch.cuda.Stream):
            self.side.wait_stream(torch.cuda.current_stream())

    def on_side(self) -> AbstractContextManager[object]:
        """In here kernels are launched on the side, or where everything else runs."""
        if isinstance(self.side, torch.cuda.Stream):
            return torch.cuda.stream(self.side)
        return contextlib.nullcontext()

    def join(self) -> None:
        """What is launched from now on follows also what was launched on the side."""
        if isinstance(self.side, torch.cuda.Stream):
            torch.cuda.current_stream().wait_stream(self.side)


PLAIN = Launching()
"""One kernel after the other."""


def why_not_early(device: torch.device) -> str | None:
    """Why no kernel can start early on a device; None where it can."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return "only compiled kernels on a CUDA device start early"
    return why_never_early(torch.cuda.get_device_capability(device))


def why_never_early(capability: tuple[int, int]) -> str | None:
    """Why no compiled kernel can start early on GPUs of a capability; None where it can."""
    if capability < EARLIEST_CAPABILITY:
        return (
            "kernels start early from compute capability 9.0 on, "
            f"this GPU has {capability[0]}.{capability[1]}"
        )
    import triton  # not by its distribution: that has other names, too, such as pytorch-triton

    version = triton.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < EARLIEST_TRITON:
        return f"triton {version} cannot start a kernel early, 3.4 can"
    return None


# What kernels work with.


class Drawing(NamedTuple):
    """A draw of masks: where they go, the seed and the draws before, how many of 2^16 drop.

    Attributes:
        masks: (B, mask record), bytes.
        state: (2,), int64.
        n_dropped: (), int32.
    """

    masks: Tensor
    state: Tensor
    n_dropped: Tensor


class Scoring(NamedTuple):
    """What a forecast is held against, and where its losses go.

    Attributes:
        target: (B, T, C).
        quantiles: (Q,).
        losses: at least (B,), float64: gets the sum of each sample's.
        done: (), int64: gets B more.
    """

    target: Tensor
    quantiles: Tensor
    losses: Tensor
    done: Tensor


class Squares(NamedTuple):
    """Where the gradient's squares are summed, one a program of `sum_splits`, and step's count."""

    sums: Tensor
    step: Tensor


class Pass(NamedTuple):
    """What the kernels of a pass work with, forward and backward.

    Attributes:
        plan: of the network's memory.
        weights: the network's.
        workspace: (B, record), float32.
        masks: (B, mask record), bytes, 1 where an element is kept.
        drawing: what draws the masks; None where they are from an earlier call.
        scale: (): what a kept element is multiplied by.
        launching: how the kernels follow each other.
    """

    plan: Plan
    weights: Weights
    workspace: Tensor
    masks: Tensor
    drawing: Drawing | None
    scale: Tensor
    launching: Launching
