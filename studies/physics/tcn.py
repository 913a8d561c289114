"""A temporal convolutional network: the past is read into a state, which is rolled out over the
horizon with what is known of it.

Source: Bai et al. 2018, arXiv:1803.01271, "An Empirical Evaluation of Generic Convolutional and
Recurrent Networks for Sequence Modeling".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from tuner.config import ModelShapes


class CausalBlock(nn.Module):
    """Two dilated convolutions that see no later row, and a path around them: (B, H, L) -> same."""

    def __init__(self, size: int, kernel_size: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.reach = (kernel_size - 1) * dilation
        self.first = nn.Conv1d(size, size, kernel_size, dilation=dilation)
        self.second = nn.Conv1d(size, size, kernel_size, dilation=dilation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(functional.relu(self.first(functional.pad(x, (self.reach, 0)))))
        y = self.dropout(functional.relu(self.second(functional.pad(y, (self.reach, 0)))))
        return x + y


class TCN(nn.Module):
    """Forecasts how far each target moves away from its last value."""

    def __init__(
        self,
        shapes: ModelShapes,
        *,
        hidden_size: int,
        dropout: float,
        kernel_size: int = 3,
        levels: int = 4,
    ) -> None:
        super().__init__()
        self.shapes = s = shapes
        read = s.n_targets + s.n_past + s.n_future
        self.read = nn.Linear(read, hidden_size)
        self.known = nn.Linear(s.n_future + 1, hidden_size)
        self.encoder, self.decoder = (
            nn.Sequential(
                *(CausalBlock(hidden_size, kernel_size, 2**n, dropout) for n in range(levels))
            )
            for _ in range(2)
        )
        self.head = nn.Linear(hidden_size, s.n_targets * s.n_quantiles)
        self.register_buffer("ahead", torch.arange(1, s.horizon + 1) / s.horizon)

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q)."""
        del static
        s, rows = self.shapes, past.shape[0]
        state = self.encoder(self.read(past).transpose(1, 2))[..., -1]  # (B, H)
        steps = self.ahead.expand(rows, -1).unsqueeze(-1)  # (B, T, 1)
        known = steps if future is None else torch.cat([future, steps], dim=-1)
        rolled = self.known(known) + state.unsqueeze(1)  # (B, T, H)
        rolled = self.decoder(rolled.transpose(1, 2)).transpose(1, 2)
        moved = self.head(rolled).view(rows, s.horizon, s.n_targets, s.n_quantiles)
        return past[:, -1:, : s.n_targets, None] + moved
