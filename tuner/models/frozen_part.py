"""A part of a network that is never trained, such as a language model: it goes where the network
goes, and is in none of its states. So no optimiser, checkpoint or saved model ever holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn


class HoldsFrozen(nn.Module):
    """A network beside a frozen part: on a GPU that is in bf16, on a CPU in fp32.

    Args:
        frozen: without gradients from here on, and as in evaluation, whatever the network does.
    """

    why_eager = ""
    """Why a step cannot be captured or compiled."""

    def __init__(self, frozen: nn.Module) -> None:
        super().__init__()
        # In a tuple it is no submodule.
        self._frozen = (frozen.eval().requires_grad_(requires_grad=False),)

    def see(self, past: Tensor) -> None:
        """Shown all windows (B, L, C + P + F) before a training: what is made once is made here."""

    @property
    def frozen(self) -> Any:
        """The part itself."""
        return self._frozen[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.frozen._apply(fn)  # noqa: SLF001 - wherever it goes
        on = next(self.frozen.parameters()).device.type
        self.frozen.to(torch.bfloat16 if on == "cuda" else torch.float32)
        return self


def frozen_parts(model: nn.Module) -> Iterator[nn.Module]:
    """Those that a network, or a part of it, holds."""
    for module in model.modules():
        if isinstance(module, HoldsFrozen):
            yield module.frozen


class Counted(NamedTuple):
    """Parameters of a network: trained ones, and frozen ones."""

    trained: int
    frozen: int

    def __str__(self) -> str:
        beside = f" and {self.frozen:,} frozen ones" if self.frozen else ""
        return f"{self.trained:,} parameters{beside}"


def count_parameters(model: nn.Module) -> Counted:
    """Those that are trained, and those that are not."""
    own = [*model.parameters()]
    held = [each for part in frozen_parts(model) for each in part.parameters()]
    trained = sum(each.numel() for each in own if each.requires_grad)
    return Counted(trained, sum(each.numel() for each in [*own, *held]) - trained)
