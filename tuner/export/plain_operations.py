"""Operations of `tuner.models` in torch's own words, which a file with the network alone has.

On a CPU their values are those of `tuner.models.ops` to the bit. Gradients are autograd's and masks
are torch's: as fast as torch is, where tuner has its own, and equal but for rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tuner.models.ops import NARROW, PRODUCTS_AT_MOST


def relu_dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """dropout(relu(x)), for x of any shape."""
    return functional.dropout(torch.relu(x), p, training)


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """`torch.nn.functional.dropout`."""
    return functional.dropout(x, p, training)


def add_dropout(residual: Tensor, x: Tensor, p: float, *, training: bool) -> Tensor:
    """The sum of `residual`, which may be broadcast, and dropout(x)."""
    return residual + functional.dropout(x, p, training)


def middle_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer over the middle axis: (B, n_in, M), (n_out, n_in), (n_out,) -> (B, n_out, M).

    Of wide planes a batched product, of others a layer between two transposes.
    """
    batched = x.shape[2] >= NARROW and not torch.is_autocast_enabled(x.device.type)
    if batched and x.shape[0] * weight.numel() <= PRODUCTS_AT_MOST:
        return torch.baddbmm(bias.unsqueeze(-1), weight.expand(len(x), -1, -1), x)
    return functional.linear(x.transpose(1, 2), weight, bias).transpose(1, 2)


def rows_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer over the last axis: (..., n_in), (n_out, n_in), (n_out,) -> (..., n_out)."""
    return functional.linear(x, weight, bias)


def restore_level(
    forecast: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor
) -> Tensor:
    """(forecast - bias) / weight * deviation + mean, per window and column.

    (B, T, C, Q), (C,), (C,), (B, 1, C), (B, 1, C) -> (B, T, C, Q).
    """
    slope = deviation / weight  # (B, 1, C)
    level = mean - bias * slope
    n_levels = forecast.shape[3]
    restored = torch.addcmul(
        level.repeat_interleave(n_levels, -1),
        forecast.flatten(2),
        slope.repeat_interleave(n_levels, -1),
    )
    return restored.view(forecast.shape)


def middle_rms_norm(plane: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm over the middle axis: (B, H, T) / sqrt(mean over H + eps) * (H,)."""
    inverse = torch.rsqrt(plane.square().mean(dim=1, keepdim=True) + eps)  # (B, 1, T)
    return plane * inverse * weight.unsqueeze(-1)
