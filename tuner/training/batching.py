"""How windows are cut into batches: full ones, then a short last one where any are left."""

from __future__ import annotations

import math
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
