"""Starts the kernels: which ones, in which order, with how many programs and warps. The one place that knows Triton."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tuner.models.fused.kernels import block, entry, gradients, head, masks
from tuner.models.fused.layout import ALIGNED
from tuner.models.fused.plan import Plan, Sizes
from tuner.models.fused.tables import TILE, DeviceTables, columns_of
from tuner.models.fused.weights import Weights

DRAWN_AT_ONCE = 512
"""Draws of a program of the masks' kernel; eight elements each."""

MOST_SPLITS = 32
"""Of a batch, when gradients are summed."""

PROGRAMS = 1536
"""About as many sum the gradients of weights."""

COLUMN_SAMPLES = 16
"""At least so many are summed by a program that reads one row of each, where the batch has them."""

SUMMED_AT_ONCE = 512
"""Numbers of the gradient whose splits a program adds up."""


HEAD_CHUNK = 64
"""Features that the head sums over at once: it holds one product only."""

LARGEST_PLANE = 32 * 128
"""Of a program of four warps: 32 numbers a thread."""

HOURS_AT_MOST = 64
"""Features whose hours are mixed at once."""


NO_WARP_GROUPS = "DISABLE_MMA_V3"
"""Of the environment, read by Triton's compiler, which looks for it in what it has cached, too."""


@contextlib.contextmanager
def without_warp_groups() -> Iterator[None]:
    """What is compiled in here multiplies by mma.sync, whatever its sizes.

    From 64 rows on Triton would take wgmma, which finds an operand by a descriptor. Of a kernel with two kinds of them
    ptxas 12.8, which Triton 3.6 and 3.7 bring along, adds some to the stack's pointer instead of to where they belong:
    an illegal memory access. No option of a kernel says so.
    """
    before = os.environ.get(NO_WARP_GROUPS)
    os.environ[NO_WARP_GROUPS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[NO_WARP_GROUPS]
        else:
            os.environ[NO_WARP_GROUPS] = before


def options(sizes: Sizes, stages: int = 2) -> dict[str, Any]:
    """Warps of a program that holds planes, and how deep its loads run ahead: 1, not at all, where that was faster.

    With four warps two programs share a multiprocessor, however many registers they take.
    """
    return {"num_warps": 8 if sizes.hidden_tile * sizes.horizon_tile > LARGEST_PLANE else 4, "num_stages": stages}


def sizes_of_hours(sizes: Sizes) -> Sizes:
    """Time mixing treats every feature alike: a wide plane is mixed some features at a time, or registers spill."""
    if sizes.hidden % HOURS_AT_MOST:
        return sizes
    return sizes._replace(hidden=HOURS_AT_MOST, hidden_tile=HOURS_AT_MOST)


def draw_masks(plan: Plan, n_samples: int, state: Tensor, n_dropped: int) -> Tensor:
    """(B, mask record), bytes: 1 where an element is kept; `state` moves on by one draw."""
    n = n_samples * plan.sizes.mask_record
    drawn = torch.empty(n_samples, plan.sizes.mask_record, dtype=torch.uint8, device=state.device)
    grid = (-(-n // (DRAWN_AT_ONCE * masks.PER_DRAW.value)),)
    masks.draw_masks[grid](drawn, state, n, n_dropped, BLOCK=DRAWN_AT_ONCE)
    state[1:].add_(1)
    return drawn


@without_warp_groups()
def forward(
    plan: Plan, weights: Weights, inputs: tuple[Tensor, Tensor, Tensor], memory: tuple[Tensor, Tensor], scale: float
) -> Tensor:
    """(B, L, K), (B, T, F), (B, S), a workspace and masks for as many samples -> (B, T, C, Q)."""
    past, future, static = inputs
    workspace, kept = memory
    sizes, grid, opts = plan.sizes, (len(past),), options(plan.sizes)
    hours = sizes_of_hours(sizes)
    out = torch.empty(len(past), sizes.horizon, sizes.targets, sizes.levels, dtype=torch.float32, device=past.device)
    entry.enter_forward[grid](
        past,
        future,
        workspace,
        kept,
        weights.entry,
        weights.past,
        weights.future,
        scale,
        E=plan.entry,
        Z=sizes,
        **options(sizes, stages=1),
    )
    for fields, block_weights in zip(plan.blocks, weights.blocks, strict=True):
        block.block_forward[grid](static, workspace, kept, *block_weights, scale, B=fields, Z=sizes, Y=hours, **opts)
    once = sizes._replace(chunk=min(HEAD_CHUNK, sizes.hidden_tile))
    head.head_forward[grid](out, workspace, weights.head, H=plan.head, Z=once, **opts)
    return out


@without_warp_groups()
def backward(
    plan: Plan, weights: Weights, tables: DeviceTables, of_out: Tensor, memory: tuple[Tensor, Tensor], scale: float
) -> Tensor:
    """The gradient of `forward`'s result -> that of all parameters, flat, in their order."""
    workspace, kept = memory
    sizes, grid, opts = plan.sizes, (len(of_out),), options(plan.sizes)
    hours = sizes_of_hours(sizes)
    head.head_backward[grid](of_out, workspace, weights.head, H=plan.head, Z=sizes, **options(sizes, stages=1))
    for fields, block_weights in zip(reversed(plan.blocks), reversed(weights.blocks), strict=True):
        block.block_backward[grid](workspace, kept, *block_weights, scale, B=fields, Z=sizes, Y=hours, **opts)
    entry.enter_backward[grid](workspace, kept, weights.past, weights.future, scale, E=plan.entry, Z=sizes, **opts)
    return parameter_gradients(sizes, tables, workspace)


def parameter_gradients(sizes: Sizes, tables: DeviceTables, workspace: Tensor) -> Tensor:
    """What the records hold, summed over the samples."""
    n_samples, n = len(workspace), tables.layout.size
    per_split = samples_per_split(len(tables.products), n_samples)
    n_splits = -(-n_samples // per_split)
    partial = torch.empty(n_splits, n, device=workspace.device)
    gradients.sum_products[len(tables.products), n_splits](
        tables.products,
        workspace,
        partial,
        n_samples,
        n,
        Z=sizes,
        SAMPLES=per_split,
        OUTPUTS=TILE,
        INPUTS=TILE,
        FEW=16,
        AT_ONCE=16,
        FAR=workspace.numel() >= 1 << 31,
        num_warps=2,  # with four, a tile of 64 x 64 takes wgmma, which reads TF32 only along the summed axis
        maxnreg=168,  # six programs a multiprocessor, and no spills
        num_stages=3,
    )
    for n_rows, table in tables.columns.items():
        together = max(1, COLUMN_SAMPLES // per_split) if n_rows == 1 else 1
        gradients.sum_columns[len(table), -(-n_splits // together)](
            table,
            workspace,
            partial,
            n_samples,
            n,
            n_splits,
            RECORD=sizes.record,
            ROWS=n_rows,
            SAMPLES=per_split,
            SPLITS=together,
            AT_ONCE=4 if n_rows == 1 else 32,
            BLOCK=columns_of(n_rows),
            num_warps=4,
        )
    gradient = torch.empty(n, device=workspace.device)
    gradients.sum_splits[(-(-n // SUMMED_AT_ONCE),)](
        partial,
        gradient,
        tables.used,
        n,
        n_splits,
        ALIGNED=ALIGNED,
        SPLITS=MOST_SPLITS,
        BLOCK=SUMMED_AT_ONCE,
        num_warps=4,
    )
    return gradient


def samples_per_split(n_tiles: int, n_samples: int) -> int:
    """A power of two, so that few kernels are compiled, that gives enough programs to fill a large GPU, but no more."""
    n_splits = max(4, min(MOST_SPLITS, PROGRAMS // n_tiles))
    return 1 << (-(-n_samples // n_splits) - 1).bit_length()
