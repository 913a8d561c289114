"""Parameters that lie one after the other in one buffer, each still its own `nn.Parameter`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tuner.models.fused.layout import layout_of


class FlatParameters:
    """Moves float32 parameters of one device into one buffer; gaps between them hold zeros.

    What refers to a parameter sees no change; what took its address before does.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        wrong = {str(p.dtype) for p in self.parameters} - {"torch.float32"}
        if wrong:
            raise ValueError(f"parameters are {', '.join(sorted(wrong))}, not torch.float32")
        self.layout = layout_of(self.parameters)
        self.values, views = self.another()
        for parameter, view in zip(self.parameters, views, strict=True):
            view.copy_(parameter.detach())
            parameter.data = view

    def another(self) -> tuple[Tensor, list[Tensor]]:
        """A buffer of zeros of the same layout, and its views in the parameters' shapes."""
        buffer = torch.zeros(self.layout.size, device=self.parameters[0].device)
        return buffer, self.layout.views(buffer, self.parameters)

    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for parameter in self.parameters:
            parameter.data = parameter.detach().clone()
