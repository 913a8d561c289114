"""Where each parameter lies in one flat buffer, for the network's gradients and the optimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

ALIGNED = 64
"""Every parameter begins at a multiple of so many numbers: 256 bytes, as torch's do."""


class Layout(NamedTuple):
    """Parameters one after the other, with gaps between them.

    Attributes:
        starts: of each parameter.
        size: of the whole, a multiple of `ALIGNED`.
    """

    starts: list[int]
    size: int

    def views(self, buffer: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        """Of a buffer of this size, in the parameters' shapes."""
        places = zip(self.starts, parameters, strict=True)
        return [buffer[start : start + p.numel()].view(p.shape) for start, p in places]


def layout_of(parameters: Sequence[nn.Parameter]) -> Layout:
    """The layout of these parameters, in their order."""
    ends = [0]
    for parameter in parameters:
        ends.append(ends[-1] + math.ceil(parameter.numel() / ALIGNED) * ALIGNED)
    return Layout(ends[:-1], ends[-1])


def whole_of(views: Sequence[Tensor], layout: Layout) -> Tensor | None:
    """The buffer that these are views of, as `Layout.views` has them; None if they are not."""
    first = views[0]
    storage = first.untyped_storage()
    begin = first.storage_offset() - layout.starts[0]
    lie_so = all(
        view.dtype == first.dtype
        and view.is_contiguous()
        and view.untyped_storage().data_ptr() == storage.data_ptr()
        and view.storage_offset() == begin + start
        for view, start in zip(views, layout.starts, strict=True)
    )
    if not lie_so or begin < 0 or storage.nbytes() < (begin + layout.size) * first.element_size():
        return None
    return first.detach().as_strided((layout.size,), (1,), begin)
