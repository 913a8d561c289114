"""A small network with a rewrite planted, or without one: two mixing blocks over each window's past."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuner import ModelShapes

COPIES = 40
"""Times that a block with permutes goes to the other layout and back."""
PIECES = 16
"""Parts of the rows of a batch that the slow kernel multiplies one by one."""


class Network(nn.Module):
    """As it was written first."""

    gain = 1.0
    permutes = 0

    def __init__(self, shapes: ModelShapes, *, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.out = (shapes.horizon, shapes.n_targets, shapes.n_quantiles)
        seen = shapes.input_size * (shapes.n_targets + shapes.n_past + shapes.n_future)
        self.into = nn.Linear(seen, hidden_size)
        self.blocks = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(2))
        self.norms = nn.ModuleList(self.norm(hidden_size) for _ in range(2))
        self.dropout = self.drop(dropout)
        self.head = nn.Linear(hidden_size, shapes.horizon * shapes.n_targets * shapes.n_quantiles)
        with torch.no_grad():
            for layer in (self.into, *self.blocks, self.head):
                layer.weight.mul_(self.gain)

    def norm(self, size: int) -> nn.Module:
        return nn.LayerNorm(size)

    def drop(self, share: float) -> nn.Module:
        return nn.Dropout(share)

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return layer(x)

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        del future, static
        for _ in range(self.permutes):
            past = past.transpose(1, 2).contiguous().transpose(1, 2).contiguous()
        x = self.product(self.into, past.flatten(1))
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = norm(x + self.dropout(torch.relu(self.product(block, x))))
        return self.product(self.head, x).view(-1, *self.out)


class Permuted(Network):
    """In the other layout: permuted, and copied, again and again."""

    permutes = COPIES


class Rewritten(Network):
    """The same function, and as fast: what changes nothing."""

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return nn.functional.linear(x, layer.weight, layer.bias)


class WrongGain(Rewritten):
    """Initialised with too large weights."""

    gain = 4.0


class OtherNorm(Rewritten):
    """A norm that does not centre, and begins with a larger scale."""

    def norm(self, size: int) -> nn.Module:
        norm = nn.RMSNorm(size)
        nn.init.constant_(norm.weight, 4.0)
        return norm


class SlowKernel(Rewritten):
    """The same products, a few rows at a time."""

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        return torch.cat([super(SlowKernel, self).product(layer, rows) for rows in x.chunk(PIECES)])


class LostDropout(Rewritten):
    """The dropout was left out."""

    def drop(self, share: float) -> nn.Module:
        del share
        return nn.Identity()
