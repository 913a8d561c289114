"""Parameters that lie one after the other in one buffer, each still its own `nn.Parameter`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tuner.models.fused.layout import layout_of
from tuner.training.model_state import Snapshot, copy_together, model_state


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

    @torch.no_grad()
    def fill(self, parameters: Sequence[nn.Parameter]) -> None:
        """Take on the values of others, on the CPU, in one transfer.

        Raises:
            ValueError: they are of other shapes; nothing was changed.
        """
        if [p.shape for p in parameters] != [p.shape for p in self.parameters]:
            raise ValueError("these are another network's parameters")
        values = torch.zeros(self.layout.size)
        copy_together(self.layout.views(values, self.parameters), parameters)
        self.values.copy_(values)

    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for parameter in self.parameters:
            parameter.data = parameter.detach().clone()


class FlatSnapshot(Snapshot):
    """Of a model most of whose parameters lie in one buffer: that is taken in one copy.

    Its copies lie as the parameters do.
    """

    def __init__(self, model: nn.Module, flat: FlatParameters) -> None:
        self._flat = flat
        self._values = flat.values.clone()
        views = flat.layout.views(self._values, flat.parameters)
        places = {
            id(parameter): view for parameter, view in zip(flat.parameters, views, strict=True)
        }
        self._copies = []
        self._apart: list[int] = []
        """Numbers of what does not lie there: buffers, and parameters that are not trained."""
        for number, tensor in enumerate(model_state(model)):
            if (view := places.get(id(tensor))) is None:
                self._apart.append(number)
                view = tensor.detach().clone()
            self._copies.append(view)

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        self._values.copy_(self._flat.values)
        if self._apart:
            present = model_state(model)
            copy_together([self._copies[n] for n in self._apart], [present[n] for n in self._apart])
