"""Operations whose plain form is slow for skinny planes: same values, fewer and larger kernels.

What such rewrites gave on the reference job stands in docs/lessons.md.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Products on a CPU, in the shapes that its library is fast at: same values.


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


PRODUCTS_AT_MOST = 8 << 20
"""Weight gradients are formed per sample, then summed, while they hold at most so many numbers."""

NARROW = 32
"""With fewer columns, a CPU is faster with one product of a transposed copy than one a sample."""


def middle_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer over the middle axis: (B, n_in, M), (n_out, n_in), (n_out,) -> (B, n_out, M).

    A batched product per sample: the plain forms copy both ways (a Linear between two transposes),
    or run cuDNN's repeatable weight gradient of a kernel-1 convolution, which alone took 3.6 of a
    6.0 ms step.
    """
    wide_enough = x.is_cuda or x.shape[2] >= NARROW
    batched = wide_enough and not torch.is_autocast_enabled(x.device.type)
    if batched and x.shape[0] * weight.numel() <= PRODUCTS_AT_MOST:
        result: Tensor = _MiddleLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return functional.linear(x.transpose(1, 2), weight, bias).transpose(1, 2)


class _MiddleLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.unsqueeze(-1), weight.expand(len(x), -1, -1), x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        grad_x = (
            torch.bmm(weight.t().expand(len(x), -1, -1), gradient)
            if ctx.needs_input_grad[0]
            else None
        )
        grad_weight = torch.bmm(gradient, x.transpose(1, 2)).sum(dim=0)
        # Along the contiguous axis first: one reduction over both axes takes three times as long.
        return grad_x, grad_weight, gradient.sum(dim=2).sum(dim=0)


def rows_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer over the last axis: (..., n_in), (n_out, n_in), (n_out,) -> (..., n_out)."""
    if torch.is_autocast_enabled(x.device.type):
        return functional.linear(x, weight, bias)
    form = _RowsLinear if x.is_cuda else HostRowsLinear
    result: Tensor = form.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _RowsLinear(RowsFunction):
    """The plain gradients, but the bias's is a product with ones: half a reduction's time."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, len(weight))  # (rows, n_out)
        grad_x = (gradient @ weight).view_as(x) if ctx.needs_input_grad[0] else None
        grad_bias = torch.mv(gradient.t(), _ones(len(gradient), gradient.device, gradient.dtype))
        return grad_x, gradient.t() @ x.reshape(len(gradient), -1), grad_bias


LEAST_ONES = 1 << 15
"""Rows of the reference job's largest batch: one block of memory serves all sizes of its search."""


def _ones(length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return _kept_ones(max(LEAST_ONES, 1 << (length - 1).bit_length()), device, dtype)[:length]


@functools.lru_cache(maxsize=64)
def _kept_ones(length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Kept, since filling it would cost as much as the product it serves."""
    return torch.ones(length, device=device, dtype=dtype)


def restore_level(
    forecast: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor
) -> Tensor:
    """(forecast - bias) / weight * deviation + mean, per window and column.

    Args:
        forecast: (B, T, C, Q).
        weight: (C,), what to divide by.
        bias: (C,).
        mean: (B, 1, C), a constant.
        deviation: (B, 1, C), a constant.
    """
    restored: Tensor = _RestoreLevel.apply(forecast, weight, bias, mean, deviation)  # type: ignore[no-untyped-call]
    return restored


class _RestoreLevel(torch.autograd.Function):
    """One multiply-add forward; backward, sums for (C,) over rows of the contiguous (B T, C Q)."""

    @staticmethod
    def forward(
        ctx: Any, forecast: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor
    ) -> Tensor:
        slope = deviation / weight  # (B, 1, C)
        level = mean - bias * slope
        ctx.save_for_backward(forecast, weight, bias, slope)
        if forecast.is_cuda:
            return torch.addcmul(level.unsqueeze(-1), forecast, slope.unsqueeze(-1))
        n_levels = forecast.shape[3]
        restored = torch.addcmul(
            _at_each(level, n_levels), forecast.flatten(2), _at_each(slope, n_levels)
        )
        return restored.view(forecast.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        (gradient,) = gradients
        forecast, weight, bias, slope = ctx.saved_tensors
        if gradient.is_cuda:
            grad_forecast = gradient * slope.unsqueeze(-1)
        else:
            grad_forecast = (gradient.flatten(2) * _at_each(slope, gradient.shape[3])).view(
                gradient.shape
            )
        total = _sum_by_column(grad_forecast)
        grad_weight = (bias * total - _sum_by_column(grad_forecast * forecast)) / weight
        return grad_forecast, grad_weight, -total, None, None


def _at_each(values: Tensor, n_levels: int) -> Tensor:
    """(B, 1, C) -> (B, 1, C Q), as a matrix's rows: on a CPU a last axis Q takes five times."""
    return values.unsqueeze(-1).expand(-1, -1, -1, n_levels).flatten(2)


def _sum_by_column(values: Tensor) -> Tensor:
    """(B, T, C, Q) -> (C,)."""
    columns, levels = values.shape[2:]
    return values.reshape(-1, columns * levels).sum(dim=0).view(columns, levels).sum(dim=1)


def middle_rms_norm(plane: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm over the middle axis: (B, H, T) / sqrt(mean over H + eps) * (H,).

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.
    """
    normed: Tensor = _MiddleRMSNorm.apply(plane, weight, eps)  # type: ignore[no-untyped-call]
    return normed


class _MiddleRMSNorm(torch.autograd.Function):
    """Left to autograd, this norm's broadcast products come back as two dozen small kernels."""

    @staticmethod
    def forward(ctx: Any, plane: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = torch.rsqrt(plane.square().mean(dim=1, keepdim=True) + eps)  # (B, 1, T)
        normed = plane * inverse
        ctx.save_for_backward(normed, inverse, weight)
        return normed * weight.unsqueeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        normed, inverse, weight = ctx.saved_tensors
        grad_weight = (gradient * normed).sum(dim=2).sum(dim=0)
        scaled = gradient * weight.unsqueeze(-1)
        # (B, 1, T): what the norm takes out again.
        along = (scaled * normed).mean(dim=1, keepdim=True)
        return torch.addcmul(scaled, normed, along, value=-1) * inverse, grad_weight, None
