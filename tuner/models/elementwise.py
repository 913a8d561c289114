"""What stands between the products of a mixing step: ReLU, dropout, residual and norm.

A network asks its `Elementwise` for it: operations of PyTorch, or an engine's own kernels. Which
one changes the speed and the masks that a seed gives, not the mathematics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from tuner.models.dropout import add_dropout, dropout, relu_dropout

Stretch = Callable[[Tensor], Tensor]
"""A plane of one hour -> one that says the same at every hour, as a view."""


class Elementwise(Protocol):
    """On planes of either layout."""

    def relu_dropout(
        self, x: Tensor, p: float, *, training: bool, stretch: Stretch | None = None
    ) -> Tensor:
        """dropout(relu(x)); with `stretch`, of `x` at every hour, each with a mask of its own."""

    def join(
        self, residual: Tensor, x: Tensor, p: float, norm: nn.Module, *, relu: bool, training: bool
    ) -> Tensor:
        """norm(residual + dropout(x)), or of relu(x).

        Args:
            residual: may be broadcast to the shape of `x`.
            x: a layer's output that nothing else needs; its memory may be written to.
            p: what share to drop.
            norm: of a plane.
            relu: whether `x` goes through a ReLU first.
            training: whether anything is dropped.
        """


class PlainElementwise:
    """One operation of PyTorch after the other."""

    def relu_dropout(
        self, x: Tensor, p: float, *, training: bool, stretch: Stretch | None = None
    ) -> Tensor:
        if stretch is None:
            return relu_dropout(x, p, training=training)
        return dropout(stretch(torch.relu(x)), p, training=training)

    def join(
        self, residual: Tensor, x: Tensor, p: float, norm: nn.Module, *, relu: bool, training: bool
    ) -> Tensor:
        if relu:
            added = residual + relu_dropout(x, p, training=training)
        else:
            added = add_dropout(residual, x, p, training=training)
        mixed: Tensor = norm(added)
        return mixed
