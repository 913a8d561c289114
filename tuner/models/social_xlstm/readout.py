"""From a detector's hidden state, and those around it, to its forecast.

Source of the pooling: Alahi et al., "Social LSTM", CVPR 2016, equations 1 and 2: the sums of each
cell go through a linear layer and a ReLU. There it is done at each step of a walk; here once, at
the end of the past, because all steps ahead are forecast at once.

Legend: B windows, N detectors, H hidden size, G cells, K numbers of context, T steps ahead, Q
quantiles.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def pooled(states: Tensor, cells: Tensor) -> Tensor:
    """The sum of the hidden states in each cell around each detector.

    Args:
        states: (B, M, H), of all detectors.
        cells: (N, G, M), as `tuner.models.social_xlstm.neighbour_grid.neighbour_cells` gives them,
            of the N detectors that are asked for.

    Returns:
        (B, N, G * H).
    """
    n_cells, n_detectors = cells.shape[1:]
    sums = torch.matmul(cells.reshape(-1, n_detectors), states)  # (B, N * G, H)
    return sums.reshape(len(states), -1, n_cells * states.shape[-1])


class Readout(nn.Module):
    """Hidden state, pooled neighbours and context to what a head reads; then the head.

    Args:
        hidden_size: H.
        n_cells: G; 0 without pooling.
        n_context: K, what is known of the window as a whole.
        dropout: probability.
        head: (B, N, H) to (B, N, T * Q).
    """

    def __init__(
        self, hidden_size: int, *, n_cells: int, n_context: int, dropout: float, head: nn.Module
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(n_cells * hidden_size, hidden_size) if n_cells else None
        self.state = nn.Linear(hidden_size, hidden_size)
        self.around = nn.Linear(hidden_size, hidden_size, bias=False) if n_cells else None
        self.context = nn.Linear(n_context, hidden_size, bias=False) if n_context else None
        self.dropout = nn.Dropout(dropout)
        self.head = head

    def forward(self, states: Tensor, around: Tensor | None, context: Tensor | None) -> Tensor:
        """(B, N, H), (B, N, G * H) or None, (B, K) or None -> (B, N, T * Q)."""
        joined = self.state(states)
        if self.embed is not None and self.around is not None and around is not None:
            joined = joined + self.around(torch.relu(self.embed(around)))
        if self.context is not None and context is not None:
            joined = joined + self.context(context).unsqueeze(1)
        forecast: Tensor = self.head(self.dropout(torch.relu(joined)))
        return forecast


class HeadsByDetector(nn.Module):
    """A linear layer of its own for each detector, all of them as one product.

    Args:
        n_detectors: N.
        n_in: H.
        n_out: T * Q.
    """

    def __init__(self, n_detectors: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)  # as torch initialises a linear layer
        self.weight = nn.Parameter(torch.empty(n_detectors, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_detectors, n_out).uniform_(-bound, bound))

    def forward(self, states: Tensor) -> Tensor:
        """(B, N, n_in) -> (B, N, n_out)."""
        by_detector = torch.matmul(states.transpose(0, 1), self.weight)  # (N, B, n_out)
        return by_detector.transpose(0, 1) + self.bias
