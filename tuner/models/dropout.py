"""Dropout at a price near that of what stands beside it, on a CPU too.

There PyTorch draws a double for every element, one after the other on one core, which took a third
of a training step.

On a CPU the masks are made from 16 random bits an element, drawn by numpy's fastest generator
(SFC64) from a seed that torch's own generator gives: a training stays a function of its seed. An
element is dropped where its 16 bits, read as a signed number, do not exceed a bound. That makes the
rate a multiple of 2^-16, and what is kept is scaled by exactly the rate realised. On CUDA, in
evaluation, and in half precision these are PyTorch's own operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from numpy.random.bit_generator import ISeedSequence
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16

_where_above = torch.ops.aten.threshold_backward
"""(values, deciders, bound) -> the values where the decider is above the bound, 0 elsewhere.

One vectorised pass. A comparison that yields booleans and a selection by them are ten times as slow
on a CPU.
"""


def relu_dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """dropout(relu(x)), for x of any shape."""
    if not training or p == 0 or not _has_cheap_masks(x):
        return functional.dropout(torch.relu(x), p, training)
    result: Tensor = _ReluDropout.apply(x, p)  # type: ignore[no-untyped-call]
    return result


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """`torch.nn.functional.dropout`, for x of any shape."""
    if not training or p == 0 or not _has_cheap_masks(x):
        return functional.dropout(x, p, training)
    result: Tensor = _Dropout.apply(x, p)  # type: ignore[no-untyped-call]
    return result


def add_dropout(residual: Tensor, x: Tensor, p: float, *, training: bool) -> Tensor:
    """The sum of `residual`, which may be broadcast, and dropout(x)."""
    if not training or p == 0 or not _has_cheap_masks(x):
        return residual + functional.dropout(x, p, training)
    result: Tensor = _AddDropout.apply(residual.expand_as(x), x, p)  # type: ignore[no-untyped-call]
    return result


def _has_cheap_masks(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


class _SeedFromTorch(ISeedSequence):
    """A generator's first state, as many words as it asks for, drawn from torch's own."""

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[Any]:
        words = torch.empty(n_words, dtype=torch.int64).random_(-(2**63), None)
        return words.numpy().view(np.uint64).astype(dtype, copy=False)


class Mask(NamedTuple):
    """An element is kept where `bits` is above `bound`, and then multiplied by `scale`."""

    bits: Tensor
    bound: int
    scale: float


def draw_mask(like: Tensor, p: float) -> Mask:
    """A fresh mask for a CPU tensor, from torch's generator, which moves on by three words.

    Args:
        like: gives shape and element type; the bits are whole numbers of this type.
        p: what share to drop, at least 0 and below 1; realised as the nearest multiple of 2^-16.
    """
    n_words = -(-like.numel() // 4)
    words = np.random.SFC64(cast("Any", _SeedFromTorch())).random_raw(n_words)
    bits = torch.from_numpy(words.view(np.int16)[: like.numel()]).view(like.shape).to(like.dtype)
    n_dropped = min(round(p * _LEVELS), _LEVELS - 1)
    return Mask(bits, n_dropped - _LEVELS // 2 - 1, _LEVELS / (_LEVELS - n_dropped))


def _only_above(x: Tensor, mask: Mask) -> Tensor:
    """The kept elements of x, not yet scaled, in the memory of the mask's bits."""
    kept: Tensor = torch.ops.aten.threshold_backward.grad_input(
        x, mask.bits, mask.bound, grad_input=mask.bits
    )
    return kept


class _ReluDropout(torch.autograd.Function):
    """What was dropped and what was below zero are both 0 in the result: backward needs no more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = draw_mask(x, p)
        result = _only_above(x, mask).clamp_min_(0).mul_(mask.scale)
        ctx.save_for_backward(result)
        ctx.scale = mask.scale
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        return _where_above(gradients[0], result, 0).mul_(ctx.scale), None


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        bits, ctx.bound, ctx.scale = draw_mask(x, p)
        ctx.save_for_backward(bits)
        result: Tensor = _where_above(x, bits, ctx.bound).mul_(ctx.scale)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (bits,) = ctx.saved_tensors
        return _where_above(gradients[0], bits, ctx.bound).mul_(ctx.scale), None


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, p: float) -> Tensor:
        bits, ctx.bound, ctx.scale = draw_mask(x, p)
        ctx.save_for_backward(bits)
        kept = _where_above(x, bits, ctx.bound)
        return torch.add(residual, kept, alpha=ctx.scale, out=kept)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        (bits,) = ctx.saved_tensors
        return gradient, _where_above(gradient, bits, ctx.bound).mul_(ctx.scale), None


# What stands between the products of a mixing step: ReLU, dropout, residual and norm.


Stretch = Callable[[Tensor], Tensor]
"""A plane of one hour -> one that says the same at every hour, as a view."""


class Elementwise:
    """On planes of either layout: one operation of PyTorch after the other."""

    def relu_dropout(
        self, x: Tensor, p: float, *, training: bool, stretch: Stretch | None = None
    ) -> Tensor:
        """dropout(relu(x)); with `stretch`, of `x` at every hour, each with a mask of its own."""
        if stretch is None:
            return relu_dropout(x, p, training=training)
        return dropout(stretch(torch.relu(x)), p, training=training)

    def join(
        self, residual: Tensor, x: Tensor, p: float, norm: nn.Module, *, relu: bool, training: bool
    ) -> Tensor:
        """norm(residual + dropout(x)), or of relu(x).

        Args:
            residual: may be broadcast to the shape of `x`.
            x: a layer's output that nothing else needs; its memory may be written to.
            p: what share to drop.
            norm: of a plane.
            relu: whether `x` goes through a ReLU first.
            training: whether anything is dropped.
        """
        if relu:
            added = residual + relu_dropout(x, p, training=training)
        else:
            added = add_dropout(residual, x, p, training=training)
        mixed: Tensor = norm(added)
        return mixed
