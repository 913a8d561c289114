"""How windows are cut into batches: full ones, then a short last one where any are left."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """(N,) -> views of at most `size` window numbers each, in order."""
    for first in range(0, len(order), size):
        yield order[first : first + size]


def batch_shapes(n_windows: int, size: int) -> list[int]:
    """The distinct batch sizes that `batches` yields for so many windows."""
    full, short = min(size, n_windows), n_windows % size
    return [full] if short in (0, full) else [full, short]
