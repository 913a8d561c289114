"""Parts of a network that need not wait for each other: in place, or side by side on a GPU.

The kernels of a small network leave most of a large GPU idle. Mixing the future covariates, or the
static ones of each block, needs nothing from the rest; on streams of their own they cost next to
nothing. Worth it only where a whole step is captured as a graph: launched one by one from Python,
kernels never overlap anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

Join = Callable[[], Tensor]
"""Waits for a branch, on the stream that asks, and gives its result."""


class Branches(Protocol):
    """Runs a function now or beside what follows."""

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        """Start `function(argument)`; its result is there once the returned function was called."""


class InPlace:
    """One after the other, on the current stream."""

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        result = function(argument)
        return lambda: result


class SideStreams:
    """Each branch on the next of `streams`.

    Autograd runs the backward pass of every operation on the stream of its forward pass.

    A tensor's memory belongs to the stream that allocated it, which may use it again as soon as the
    last reference is gone, whatever other streams still do with it. So every tensor that crosses is
    marked as used on the other side.
    """

    def __init__(self, streams: Sequence[torch.cuda.Stream]) -> None:
        self._streams = streams
        self._next = 0

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        side = self._streams[self._next % len(self._streams)]
        self._next += 1
        side.wait_stream(torch.cuda.current_stream())
        argument.record_stream(side)
        with torch.cuda.stream(side):
            result = function(argument)

        def join() -> Tensor:
            here = torch.cuda.current_stream()
            here.wait_stream(side)
            result.record_stream(here)
            return result

        return join
