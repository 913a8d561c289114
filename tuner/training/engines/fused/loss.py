"""The protocol's loss and its slope along the forecast, in one launch that adds up the losses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.launch_order import PLAIN, Launching

BLOCK = 1024


@triton.jit(do_not_specialize=["n_windows"])
def _loss(
    prediction: tl.tensor,
    target: tl.tensor,
    quantiles: tl.tensor,
    slope: tl.tensor,
    losses: tl.tensor,
    done: tl.tensor,
    n_windows: tl.tensor,
    n_values: tl.tensor,
    share: tl.tensor,
    n_quantiles: tl.constexpr,
    with_slope: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """One program for `block` of the n_values numbers of a batch's forecast.

    prediction: (B, T, C, Q); target: (B, T, C); quantiles: (Q,). slope: (B, T, C, Q), filled with
    the gradient along the prediction, each number's loss weighing `share`. losses: (programs,),
    float64, gets the sum of a program's losses; done: (), int64, gets n_windows more.
    """
    follow(early)
    program = tl.program_id(0)
    at = program * block + tl.arange(0, block)
    inside = at < n_values
    level = tl.load(quantiles + at % n_quantiles, mask=inside, other=0.0)
    error = tl.load(target + at // n_quantiles, mask=inside, other=0.0)
    error -= tl.load(prediction + at, mask=inside, other=0.0)
    gradient = tl.where(error < 0, 1 - level, -level)
    if with_slope:
        tl.store(slope + at, gradient * share, mask=inside)
    tl.store(losses + program, tl.load(losses + program) + tl.sum(-gradient * error).to(tl.float64))
    if program == 0:
        tl.store(done, tl.load(done) + n_windows)


class LossSum:
    """What a pass over windows has come to so far, on the device: windows done, sum of losses.

    Args:
        device: of the forecasts.
        n_values: the most that one batch's forecast holds.
        n_windows: the most in a batch, where each of them has a place of its own.
    """

    def __init__(self, device: torch.device, n_values: int, n_windows: int = 0) -> None:
        # A place for each program: sums that never depend on who comes first.
        n_parts = max(triton.cdiv(n_values, BLOCK), n_windows)
        # Both in one buffer, which one launch empties, and both where 16 bytes begin.
        n_places = n_parts + n_parts % 2
        self._all = torch.zeros(n_places + 1, dtype=torch.int64, device=device)
        self.parts = self._all[:n_parts].view(torch.float64)
        self.done = self._all[n_places]

    def reset(self) -> None:
        self._all.zero_()


def score(
    prediction: Tensor,
    target: Tensor,
    quantiles: Tensor,
    losses: LossSum,
    *,
    slope: Tensor | None = None,
    launching: Launching = PLAIN,
) -> None:
    """Add a batch's `quantile_loss`, times its windows and the values of one, to `losses`.

    Args:
        prediction: (B, T, C, Q) float32, contiguous.
        target: (B, T, C) float32, contiguous.
        quantiles: (Q,) float32.
        losses: gets B windows more.
        slope: (B, T, C, Q), filled with the gradient of the batch's loss along the prediction.
        launching: how it follows other kernels.
    """
    if not prediction.is_contiguous():
        raise ValueError("a forecast is scored as it lies in memory: contiguous")
    _loss[(triton.cdiv(prediction.numel(), BLOCK),)](
        prediction,
        target,
        quantiles,
        prediction if slope is None else slope,
        losses.parts,
        losses.done,
        len(prediction),
        prediction.numel(),
        1 / target.numel(),
        len(quantiles),
        slope is not None,
        BLOCK,
        **launching.first(),
    )
