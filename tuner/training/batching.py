"""How windows are cut into batches: full ones, then a short last one where any are left."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """(N,) -> views of at most `size` window numbers each, in order."""
    for first in range(0, len(order), size):
        yield order[first : first + size]


def batch_shapes(n_windows: int, size: int) -> list[int]:
    """The distinct batch sizes that `batches` yields for so many windows."""
    full, short = min(size, n_windows), n_windows % size
    return [full] if short in (0, full) else [full, short]


def sizes_with_a_lone_window(n_windows: int) -> list[int]:
    """The batch sizes, smallest first, with which the last batch of an epoch has one window; of
    those that are larger than the data none.
    """
    others = n_windows - 1
    found = {1}
    for size in range(1, math.isqrt(others) + 1):
        if others % size == 0:
            found |= {size, others // size}
    return sorted(found)


# The order of the training windows in each epoch: a fresh permutation, drawn ahead of its time.


class Shuffles:
    """Permutations from a generator, one an epoch; the next one may be drawn while a device works.

    Args:
        generator: on the device.
        n_windows: training windows.
        device: where they are wanted.
    """

    def __init__(self, generator: torch.Generator, n_windows: int, device: torch.device) -> None:
        self._generator = generator
        self._n_windows = n_windows
        self._device = device
        self._ahead: Tensor | None = None
        self._before: Tensor | None = None
        """The generator's state before the permutation that is drawn ahead."""

    def next(self) -> Tensor:
        """(N,), int64: the next epoch's windows."""
        order = self._draw() if self._ahead is None else self._ahead
        self._ahead = self._before = None
        return order

    def draw_ahead(self) -> None:
        """Draw what `next` will give, without waiting for it."""
        if self._ahead is None:
            self._before = self._generator.get_state()
            self._ahead = self._draw()

    def get_state(self) -> Tensor:
        """The generator's, from which what `next` will give follows."""
        return self._generator.get_state() if self._before is None else self._before

    def set_state(self, state: Tensor) -> None:
        """Go on from a `get_state`.

        Raises:
            RuntimeError: it is no generator's of this device.
        """
        self._generator.set_state(state)
        self._ahead = self._before = None

    def _draw(self) -> Tensor:
        return torch.randperm(self._n_windows, generator=self._generator, device=self._device)
