"""One small network, the same for tuner's loop, for a plain loop and for Lightning: a layer over each
window's past, from the last value on.
"""

from __future__ import annotations

from torch import Tensor, nn

from tuner import ModelShapes


class SmallNetwork(nn.Module):
    def __init__(self, shapes: ModelShapes, *, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.targets = shapes.n_targets
        self.out = (shapes.horizon, shapes.n_targets, shapes.n_quantiles)
        seen = shapes.input_size * (shapes.n_targets + shapes.n_past + shapes.n_future)
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(seen, hidden_size),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size, shapes.horizon * shapes.n_targets * shapes.n_quantiles),
        )

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        del future, static
        last = past[:, -1, : self.targets]  # (B, C)
        return last[:, None, :, None] + self.layers(past).view(-1, *self.out)
