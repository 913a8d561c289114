"""What tells the variants apart: how features and time lie, and what normalises after a mixing.

Legend: B batch, T horizon, H features. A *plane* is one sample's features and time.
Time-first planes are (B, T, H), channel-first planes (B, H, T).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tuner.models.ops import middle_linear, middle_rms_norm, restore_level, rows_linear

EPS = 1e-5
"""Added to the variance or mean square by every norm here (the reference's LayerNorm default)."""

LAST = 2
"""The last axis of a plane."""


class MiddleLinear(nn.Linear):
    """A linear layer over the middle axis: (B, n_in, H) -> (B, n_out, H)."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.Linear gives it)
        return middle_linear(input, self.weight, self.bias)


class RowsLinear(nn.Linear):
    """A linear layer over the last axis."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.Linear gives it)
        return rows_linear(input, self.weight, self.bias)


class PointwiseConv(nn.Conv1d):
    """A Conv1d of kernel 1, (B, n_in, T) -> (B, n_out, T), without cuDNN's slow gradient."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, kernel_size=1)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.Conv1d gives it)
        if not input.is_cuda:
            return super().forward(input)
        assert self.bias is not None, "built with one"
        return middle_linear(input, self.weight.squeeze(-1), self.bias)


class Layout:
    """How a plane lies in memory, and which layers mix its two axes."""

    feature_axis: int
    feature_linear: type[nn.Module]
    """Applied to the features of every hour: `feature_linear(n_in, n_out)`."""
    time_linear: type[nn.Module]
    """Applied to the hours of every feature."""

    def enter(self, series: Tensor) -> Tensor:
        """(B, time, features), as data arrives -> a plane."""
        return series if self.feature_axis == LAST else series.transpose(1, 2)

    leave = enter
    """A plane -> (B, time, features)."""

    def one_hour(self, static: Tensor) -> Tensor:
        """(B, S) -> a plane of a single hour."""
        return static.unsqueeze(1 + LAST - self.feature_axis)

    def stretch(self, plane: Tensor, horizon: int) -> Tensor:
        """A plane of one hour -> one that says the same at every hour of the horizon (a view)."""
        return plane.expand((-1, horizon, -1) if self.feature_axis == LAST else (-1, -1, horizon))


class TimeFirst(Layout):
    """(B, T, H): feature mixing is a plain Linear, time mixing permutes there and back."""

    feature_axis = LAST
    feature_linear = RowsLinear
    time_linear = MiddleLinear


class ChannelFirst(Layout):
    """(B, H, T): feature mixing is a Conv1d of kernel 1, time mixing a Linear on the last axis."""

    feature_axis = 1
    feature_linear = PointwiseConv
    time_linear = RowsLinear


class FeatureRMSNorm(nn.Module):
    """(B, H, T) divided by its root mean square over H, times a weight per feature.

    Nothing is subtracted, nothing permuted. Source: Zhang and Sennrich, 2019.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019; eps as
        LayerNorm's.
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_features))  # (H,)

    def forward(self, plane: Tensor) -> Tensor:
        return middle_rms_norm(plane, self.weight, EPS)


class FeatureLayerNorm(nn.LayerNorm):
    """(B, H, T) normalised over H at every hour, affine per feature; LayerNorm needs H last.

    Hence the transposes.
    """

    def __init__(self, n_features: int) -> None:
        super().__init__(n_features, eps=EPS)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.LayerNorm gives it)
        return super().forward(input.transpose(1, 2)).transpose(1, 2)


def time_first_plane_norm(n_features: int, horizon: int) -> nn.Module:
    """LayerNorm over (T, H) jointly, affine per (time, feature)."""
    return nn.LayerNorm((horizon, n_features), eps=EPS)


def channel_first_plane_norm(n_features: int, horizon: int) -> nn.Module:
    """The same function on (H, T): LayerNorm over both, affine per (feature, time)."""
    return nn.LayerNorm((n_features, horizon), eps=EPS)


def feature_rms_norm(n_features: int, horizon: int) -> nn.Module:  # noqa: ARG001 (one signature for all norms)
    """RMSNorm over the feature axis of a channel-first plane."""
    return FeatureRMSNorm(n_features)


def feature_layer_norm(n_features: int, horizon: int) -> nn.Module:  # noqa: ARG001
    """LayerNorm over the feature axis of a channel-first plane."""
    return FeatureLayerNorm(n_features)


def feature_batch_norm(n_features: int, horizon: int) -> nn.Module:  # noqa: ARG001
    """BatchNorm1d over a plane's features: statistics of batch and time, running ones in eval."""
    return nn.BatchNorm1d(n_features, eps=EPS)


# Reversible instance normalisation: a window's level and spread are taken off and put back.


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


class Grouped(nn.Module):
    """A module for each group of rows, all computed at once: each weight is a stack of theirs, and
    each product a batch of products.

    A group is `size` rows that follow each other; the last one is those that are left. What it
    lacks is filled up with zeros, whose results are dropped.

    Args:
        make: a group's module; its inputs have rows, (B, size, K), but for the last, which all
            groups share.
        n_rows: N.
        size: rows in a group; more than there are count as all.
    """

    def __init__(self, make: Callable[[], nn.Module], n_rows: int, size: int) -> None:
        super().__init__()
        self.size = min(size, n_rows)
        modules = [make() for _ in range(math.ceil(n_rows / self.size))]
        self.lacking = len(modules) * self.size - n_rows
        self.stacked = modules[0]
        for path, _ in list(self.stacked.named_parameters()):
            owner, _, name = path.rpartition(".")
            weights = torch.stack([each.get_parameter(path).detach() for each in modules])
            setattr(self.stacked.get_submodule(owner), name, nn.Parameter(weights))

    def forward(self, *inputs: Tensor | None) -> Tensor:
        """(B, N, ...) or None each, and what all share -> (B, N, K)."""
        *own, shared = inputs
        given = [None if each is None else self._by_group(each) for each in own]
        along = [None if each is None else 0 for each in given]

        def of_group(weights: dict[str, Tensor], *parts: Tensor | None) -> Tensor:
            found: Tensor = functional_call(self.stacked, weights, parts)
            return found

        at_once = torch.vmap(of_group, (0, *along, None), randomness="different")
        found = at_once(dict(self.stacked.named_parameters()), *given, shared)  # (groups, B, ...)
        by_row: Tensor = found.transpose(0, 1).flatten(1, 2)
        return by_row[:, : by_row.shape[1] - self.lacking]

    def _by_group(self, numbers: Tensor) -> Tensor:
        """(B, N, K) -> (groups, B, size, K)."""
        filled = functional.pad(numbers, (0, 0, 0, self.lacking))
        return filled.reshape(len(filled), -1, self.size, filled.shape[-1]).transpose(0, 1)
