"""Products on a CPU, in the shapes that its library is fast at: same values (docs/log.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

TILE = 16
"""Columns that results are formed by. With fewer, a product takes two to seven times as long."""


class RowsFunction(torch.autograd.Function):
    """A linear layer over the last axis, whose gradients are formed as the device likes best."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight, bias)


class HostRowsLinear(RowsFunction):
    """Its backward products avoid the uneven rows of a few covariates."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        n_out, n_in = weight.shape
        rows, inputs = gradients[0].reshape(-1, n_out), x.reshape(-1, n_in)
        grad_x = _product(rows, weight).view(x.shape) if ctx.needs_input_grad[0] else None
        sideways = n_in % TILE > 0 and n_out % TILE == 0
        grad_weight = torch.mm(inputs.t(), rows).t() if sideways else torch.mm(rows.t(), inputs)
        return grad_x, grad_weight, rows.sum(dim=0)


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """(rows, n_out) @ (n_out, n_in), a narrow weight widened by zeros to one group of columns."""
    n_in = weight.shape[1]
    if n_in >= TILE:
        return torch.mm(rows, weight)
    return torch.mm(rows, functional.pad(weight, (0, TILE - n_in)))[:, :n_in]
