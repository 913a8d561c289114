"""Layers of neuralforecast's networks in forms that a GPU runs faster: the same values, up to
rounding.

In fp32, with repeatable algorithms, cuDNN takes many times as long for a convolution over few steps
as cuBLAS does for the product that it is; a batch norm over the middle axis first copies what it
norms; a bias's gradient, a sum over rows, takes half the time as a product; and interpolation along
one axis runs in as few threads as it has outputs, whatever the batch. Weights and their names
stay, so that what is trained here loads into the library's class.
What each gave is in benchmarks/neuralforecast_classes/README.md.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tuner.models.ops import rows_linear


class RowsLinear(nn.Linear):
    """`Linear`, whose bias has its gradient from a product with ones."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(..., n_in) to (..., n_out)."""
        return _linear(input, self.weight, self.bias)


class PointwiseConv1d(nn.Conv1d):
    """`Conv1d` with a kernel of 1: a product at each step."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(B, C, T) to (B, O, T)."""
        if not input.is_cuda:
            return super().forward(input)
        rows = input.transpose(1, 2)
        return _linear(rows, self.weight.squeeze(-1), self.bias).transpose(1, 2)


class CausalProduct(nn.Module):
    """The library's `CausalConv1d`: one product of each step and the earlier ones that it sees."""

    conv: nn.Conv1d
    causalconv: nn.Module
    activation: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T) to (B, O, T)."""
        if not x.is_cuda:
            return cast("Tensor", self.causalconv(x))
        seen = seen_steps(x.transpose(1, 2), self.conv.kernel_size[0], self.conv.dilation[0])
        weight = self.conv.weight.permute(0, 2, 1).flatten(1)  # (O, K C)
        product = _linear(seen, weight, self.conv.bias)
        return cast("Tensor", self.activation(product)).transpose(1, 2)


class RowsBatchNorm1d(nn.BatchNorm1d):
    """`BatchNorm1d` where the features lie beside each other in memory, as rows of a table."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(B, C, T), or (B, C)."""
        as_planes = input.dim() == 2 + 1 and not input.is_contiguous()
        if not (input.is_cuda and as_planes):
            return super().forward(input)
        by_step = input.transpose(1, 2)  # (B, T, C)
        normed = super().forward(by_step.reshape(-1, by_step.shape[2]))
        return normed.view(by_step.shape).transpose(1, 2)


class InterpolatingBasis(nn.Module):
    """The library's `_IdentityBasis`: a product of the knots with what each gives to each hour."""

    backcast_size: int
    forecast_size: int
    out_features: int
    interpolation_mode: str

    def forward(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L + Q K) to (B, L) and (B, T, Q), with K knots for T hours."""
        knots = theta[:, self.backcast_size :].reshape(len(theta), self.out_features, -1)
        forecast = interpolated(knots, self.forecast_size, self.interpolation_mode)
        return theta[:, : self.backcast_size], forecast.transpose(1, 2)


def interpolated(knots: Tensor, size: int, mode: str) -> Tensor:
    """(B, Q, K) to (B, Q, size), as `torch.nn.functional.interpolate`."""
    if not knots.is_cuda:
        return functional.interpolate(knots, size=size, mode=mode)
    each = torch.eye(knots.shape[2], device=knots.device, dtype=knots.dtype)
    return knots @ functional.interpolate(each.unsqueeze(0), size=size, mode=mode).squeeze(0)


def make_faster(model: nn.Module) -> None:
    """Change every such layer in the model, in place."""
    for module in model.modules():
        kind = type(module)
        if kind is nn.Linear:
            module.__class__ = RowsLinear
        elif kind is nn.Conv1d and _sees_one_step(cast("nn.Conv1d", module)):
            module.__class__ = PointwiseConv1d
        elif kind is nn.BatchNorm1d:
            module.__class__ = RowsBatchNorm1d
        elif _named(kind) == _CAUSAL and _is_causal(module):
            module.__class__ = CausalProduct
        elif _named(kind) == _BASIS and module.interpolation_mode in _ALONG_ONE_AXIS:
            module.__class__ = InterpolatingBasis


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer over the last axis."""
    if rows.is_cuda and bias is not None:
        return rows_linear(rows, weight, bias)
    return functional.linear(rows, weight, bias)


_CAUSAL = "neuralforecast.common._modules.CausalConv1d"
_BASIS = "neuralforecast.models.nhits._IdentityBasis"
_ALONG_ONE_AXIS = ("linear", "nearest")


def _named(kind: type[nn.Module]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_causal(module: Any) -> bool:
    conv = module.conv
    padding = (conv.kernel_size[0] - 1) * conv.dilation[0]
    return bool(conv.padding == (padding,) and conv.stride == (1,) and conv.groups == 1)


def _sees_one_step(module: nn.Conv1d) -> bool:
    return (
        module.kernel_size == (1,)
        and module.stride == (1,)
        and module.padding in ((0,), "valid")
        and module.groups == 1
    )


def seen_steps(rows: Tensor, kernel: int, dilation: int) -> Tensor:
    """(B, T, C) to (B, T, K C): beside each step the earlier ones, the earliest first, at
    distances of the dilation; zeros before the first.
    """
    seen: Tensor = _SeenSteps.apply(rows, kernel, dilation)  # type: ignore[no-untyped-call]
    return seen


class _SeenSteps(torch.autograd.Function):
    """Left to autograd, each step's slices come back as whole planes of zeros, to be added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, kernel: int, dilation: int) -> Tensor:
        ctx.kernel, ctx.dilation = kernel, dilation
        batch, steps, columns = rows.shape
        seen = rows.new_empty(batch, steps, kernel, columns)
        for tap in range(kernel):
            back = min((kernel - 1 - tap) * dilation, steps)
            seen[:, :back, tap] = 0
            seen[:, back:, tap] = rows[:, : steps - back]
        return seen.flatten(2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        (gradient,) = gradients
        batch, steps, _ = gradient.shape
        by_tap = gradient.reshape(batch, steps, ctx.kernel, -1)
        total = by_tap[:, :, -1].clone(memory_format=torch.contiguous_format)
        for tap in range(ctx.kernel - 1):
            back = (ctx.kernel - 1 - tap) * ctx.dilation
            if back < steps:
                total[:, : steps - back] += by_tap[:, back:, tap]
        return total, None, None
