"""A copy of a network's weights and buffers on its own device, to return to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn


class Snapshot:
    """Parameters and buffers as they are now: running statistics, counters, non-persistent ones."""

    def __init__(self, model: nn.Module) -> None:
        self._copies = [tensor.detach().clone() for tensor in model_state(model)]

    @property
    def tensors(self) -> list[Tensor]:
        """The copies themselves, in the order of `model_state`."""
        return self._copies

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        """Remembers the model's present state instead, in the memory already held."""
        copy_together(self._copies, model_state(model))

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Writes the remembered state back in place: references to parameters stay valid."""
        copy_together(model_state(model), self._copies)

    def give_to(self, model: nn.Module) -> None:
        """Has another model of the same sizes, on any device, hold the copies themselves.

        This is the snapshot's end: what it took later, the model would have too.
        """
        for copy, tensor in zip(self._copies, model_state(model), strict=True):
            tensor.data = copy


def model_state(model: nn.Module) -> list[Tensor]:
    """A network's parameters, then its buffers: the very tensors."""
    return list(chain(model.parameters(), model.buffers()))


@torch.no_grad()
def copy_all(held: Sequence[Tensor], tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Write `tensors`, named `<prefix>/<number>`, into `held`, in place.

    Raises:
        ValueError: they are of other shapes or types, or not as many; nothing was changed.
    """
    names = [f"{prefix}/{n}" for n in range(len(held))]
    theirs = {name for name in tensors if name.startswith(f"{prefix}/")}
    if theirs != set(names):
        raise ValueError(f"it holds {len(theirs)} tensors of the {prefix}, not {len(names)}")
    for name, tensor in zip(names, held, strict=True):
        if not same_kind(tensors[name], tensor):
            raise ValueError(f"{name} is {_kind(tensors[name])}, not {_kind(tensor)}")
    for name, tensor in zip(names, held, strict=True):
        tensor.copy_(tensors[name])


@torch.no_grad()
def copy_together(held: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Write each of `tensors` into its like in `held`, all of a type and a device at once.

    One by one, a GPU is told of hundreds, each of which takes the host microseconds.
    """
    alike: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], list[Tensor]]] = {}
    for into, tensor in zip(held, tensors, strict=True):
        targets, sources = alike.setdefault((tensor.dtype, tensor.device), ([], []))
        targets.append(into)
        sources.append(tensor)
    for targets, sources in alike.values():
        torch._foreach_copy_(targets, sources)


def same_kind(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape and type."""
    return a.shape == b.shape and a.dtype == b.dtype


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
