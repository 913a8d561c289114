"""Reversible instance normalisation: a window's level and spread are taken off and put back.

Source: Kim et al., "Reversible Instance Normalization for Accurate Time-Series Forecasting against
Distribution Shift", ICLR 2022. Biased variance, eps 1e-5 under the root, affine; the inverse
divides by weight + eps**2, as the protocol has it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tuner.models.ops import restore_level

EPS = 1e-5


class WindowStatistics(NamedTuple):
    """Mean and standard deviation over time of each window and column, both (B, 1, C)."""

    mean: Tensor
    deviation: Tensor


class ReversibleInstanceNorm(nn.Module):
    """Normalises a window's target columns, and undoes it on the forecast. Keeps no statistics.

    The affine step that follows the normalisation is applied by `after_projection`: see there.

    Args:
        n_targets: C, the columns that are normalised; others pass as they are.
    """

    def __init__(self, n_targets: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_targets))  # (C,)
        self.bias = nn.Parameter(torch.zeros(n_targets))  # (C,)

    def forward(self, targets: Tensor) -> tuple[Tensor, WindowStatistics]:
        """(B, L, C) -> the same, of mean 0 and deviation 1 over L; statistics for `inverse`."""
        # Two passes: more exact than one, and torch's variance in one is slow over this axis.
        mean = targets.mean(dim=1, keepdim=True).detach()  # (B, 1, C)
        centred = targets - mean
        deviation = torch.sqrt(centred.square().mean(dim=1, keepdim=True) + EPS).detach()
        return centred / deviation, WindowStatistics(mean, deviation)

    def after_projection(self, projected: Tensor, projection: nn.Linear) -> Tensor:
        """The affine step, taken after a linear layer over time instead of before it.

        W (z w + b) + c = w (W z + c) + (b W1 + c (1 - w)): the same value, but on T hours instead
        of L, and the normalised window needs no gradient, which saves the projection's largest
        backward product.

        Args:
            projected: (B, T, K), `projection` of the normalised window, targets first of K columns.
            projection: the layer from L to T hours.

        Returns:
            (B, T, K).
        """
        n_other = projected.shape[-1] - len(self.weight)
        scale = functional.pad(self.weight, (0, n_other), value=1.0)  # (K,)
        shift = torch.outer(projection.weight.sum(dim=1), self.bias) + torch.outer(
            projection.bias, 1 - self.weight
        )
        return torch.addcmul(functional.pad(shift, (0, n_other)), projected, scale)

    def inverse(self, forecast: Tensor, statistics: WindowStatistics) -> Tensor:
        """(B, T, C, Q), normalised -> the same in the units of the window of these statistics.

        Args:
            forecast: (B, T, C, Q).
            statistics: of the same B windows, as `forward` gave them.
        """
        return restore_level(
            forecast, self.weight + EPS**2, self.bias, statistics.mean, statistics.deviation
        )
