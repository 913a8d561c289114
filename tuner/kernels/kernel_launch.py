"""Starts the network's kernels: which, in which order, with how many programs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tuner.kernels import block, ends, pieces
from tuner.kernels.launch_order import Launching
from tuner.kernels.plan import ALIGNED, TILE, DeviceTables, Plan, Sizes, Weights, columns_of
from tuner.kernels.weight_gradients import sum_columns, sum_products, sum_splits

# Starts the kernels that sum the parameters' gradients over the samples, from their records.


MOST_SPLITS = 32
"""Of a batch, when gradients are summed."""

PROGRAMS = 1536
"""About as many sum the gradients of weights."""

COLUMN_SAMPLES = 16
"""At least so many are summed by a program that reads one row of each, where the batch has them."""

SUMMED_AT_ONCE = 512
"""Numbers of the gradient whose splits a program adds up."""


class Squares(NamedTuple):
    """Where the gradient's squares are summed, one a program of `sum_splits`, and step's count."""

    sums: Tensor
    step: Tensor


def parameter_gradients(
    sizes: Sizes,
    tables: DeviceTables,
    workspace: Tensor,
    launching: Launching,
    squares: Squares | None = None,
) -> Tensor:
    """What the records hold, summed over the samples; the sums of squares too where wanted."""
    n_samples, n = len(workspace), tables.layout.size
    per_split = samples_per_split(len(tables.products), n_samples)
    n_splits = -(-n_samples // per_split)
    partial = torch.empty(n_splits, n, device=workspace.device)
    launching.branch()
    sum_products[len(tables.products), n_splits](
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
        num_warps=2,  # four take wgmma for a tile of 64 x 64: TF32 only along the summed axis
        maxnreg=168,  # six programs a multiprocessor, and no spills
        num_stages=3,
        **launching.next(),
    )
    with launching.on_side():
        _sum_all_columns(sizes, tables, workspace, partial, per_split, launching)
    launching.join()
    gradient = torch.empty(n, device=workspace.device)
    sum_splits[(-(-n // SUMMED_AT_ONCE),)](
        partial,
        gradient,
        tables.used,
        *((gradient, gradient) if squares is None else squares),
        n,
        n_splits,
        ALIGNED=ALIGNED,
        SPLITS=MOST_SPLITS,
        BLOCK=SUMMED_AT_ONCE,
        SQUARED=squares is not None,
        num_warps=4,
        **(launching.next() if launching.side is None else launching.first()),
    )
    return gradient


def _sum_all_columns(
    sizes: Sizes,
    tables: DeviceTables,
    workspace: Tensor,
    partial: Tensor,
    per_split: int,
    launching: Launching,
) -> None:
    """The share of `partial` (splits, numbers) of norms, and of what samples have a share of."""
    n_samples, (n_splits, n) = len(workspace), partial.shape
    follows = launching.next() if launching.side is None else launching.first()
    for n_rows, table in tables.columns.items():
        together = max(1, COLUMN_SAMPLES // per_split) if n_rows == 1 else 1
        sum_columns[len(table), -(-n_splits // together)](
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
            **follows,
        )


def samples_per_split(n_tiles: int, n_samples: int) -> int:
    """A power of two, so that few are compiled; enough programs to fill a large GPU, no more."""
    n_splits = max(4, min(MOST_SPLITS, PROGRAMS // n_tiles))
    return 1 << (-(-n_samples // n_splits) - 1).bit_length()


DRAWN_AT_ONCE = 512
"""Draws of a program of the masks' kernel; eight elements each."""

HEAD_CHUNK = 64
"""Features that the head sums over at once: it holds one product only."""

LARGEST_PLANE = 32 * 128
"""Of a program of four warps: 32 numbers a thread."""

TIME_MIXING_FEATURES = 64
"""Features whose hours are mixed at once."""

NO_WARP_GROUPS = "DISABLE_MMA_V3"
"""Of the environment, read by Triton's compiler, which looks for it in what it has cached, too."""


@contextlib.contextmanager
def without_warp_groups() -> Iterator[None]:
    """What is compiled in here multiplies by mma.sync, whatever its sizes.

    From 64 rows on Triton would take wgmma, which finds an operand by a descriptor. Of a kernel
    with two kinds of them ptxas 12.8, which Triton 3.6 and 3.7 bring along, adds some to the
    stack's pointer instead of to where they belong: an illegal memory access. No option of a kernel
    says so.
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
    """Warps of a program that holds planes, and how deep its loads run ahead.

    One stage, no running ahead, where that was faster.

    With four warps two programs share a multiprocessor, however many registers they take.
    """
    return {
        "num_warps": 8 if sizes.hidden_tile * sizes.horizon_tile > LARGEST_PLANE else 4,
        "num_stages": stages,
    }


def time_mixing_sizes(sizes: Sizes) -> Sizes:
    """Sizes of time mixing: a wide plane is mixed some features at a time, or registers spill.

    It treats every feature alike.
    """
    if sizes.hidden % TIME_MIXING_FEATURES:
        return sizes
    return sizes._replace(hidden=TIME_MIXING_FEATURES, hidden_tile=TIME_MIXING_FEATURES)


class Memory(NamedTuple):
    """What a pass works in: (B, record) float32, (B, mask record) bytes, 1 where one is kept."""

    workspace: Tensor
    masks: Tensor


class Drawing(NamedTuple):
    """A draw of masks: where they go, the seed and the draws before, how many of 2^16 drop.

    Attributes:
        masks: (B, mask record), bytes.
        state: (2,), int64.
        n_dropped: (), int32.
    """

    masks: Tensor
    state: Tensor
    n_dropped: Tensor

    @property
    def n_programs(self) -> int:
        per_program: int = DRAWN_AT_ONCE * pieces.PER_DRAW.value
        return -(-self.masks.numel() // per_program)


class Scoring(NamedTuple):
    """What a forecast is held against, and where its losses go.

    Attributes:
        target: (B, T, C).
        quantiles: (Q,).
        losses: at least (B,), float64: gets the sum of each sample's.
        done: (), int64: gets B more.
    """

    target: Tensor
    quantiles: Tensor
    losses: Tensor
    done: Tensor


def draw_masks(drawing: Drawing, launching: Launching) -> None:
    """Fill the masks. `enter_forward` counts the draw: while they are drawn, all read the count."""
    pieces.draw_masks[(drawing.n_programs,)](
        drawing.masks,
        drawing.state,
        drawing.masks.numel(),
        drawing.n_dropped,
        BLOCK=DRAWN_AT_ONCE,
        **launching.first(),
    )


@without_warp_groups()
def forward(
    plan: Plan,
    weights: Weights,
    inputs: tuple[Tensor, Tensor, Tensor],
    memory: Memory,
    scale: Tensor,
    drawn: Drawing | None,
    launching: Launching,
) -> Tensor:
    """(B, L, K), (B, T, F), (B, S) and memory for as many samples -> (B, T, C, Q).

    `drawn` is what drew the masks, None where they are from an earlier call.
    """
    forward_to_last_plane(plan, weights, inputs, memory, scale, drawn, launching)
    sizes, n = plan.sizes, len(memory.workspace)
    shape = n, sizes.horizon, sizes.targets, sizes.levels
    out = torch.empty(shape, dtype=torch.float32, device=memory.workspace.device)
    once = sizes._replace(chunk=min(HEAD_CHUNK, sizes.hidden_tile))
    ends.head_forward[(n,)](
        out,
        memory.workspace,
        weights.head,
        H=plan.head,
        Z=once,
        **options(sizes),
        **launching.next(),
    )
    return out


def forward_to_last_plane(
    plan: Plan,
    weights: Weights,
    inputs: tuple[Tensor, Tensor, Tensor],
    memory: Memory,
    scale: Tensor,
    drawn: Drawing | None,
    launching: Launching,
) -> None:
    """From the windows to the last plane, in the workspace."""
    past, future, static = inputs
    workspace, kept = memory
    sizes, grid, opts = plan.sizes, (len(past),), options(plan.sizes)
    hours = time_mixing_sizes(sizes)
    ends.enter_forward[grid](
        past,
        future,
        workspace,
        kept,
        kept if drawn is None else drawn.state,
        weights.entry,
        weights.past,
        weights.future,
        scale,
        E=plan.entry,
        Z=sizes,
        DRAWN=drawn is not None,
        **options(sizes, stages=1),
        **(launching.first() if drawn is None else launching.next()),
    )
    for fields, block_weights in zip(plan.blocks, weights.blocks, strict=True):
        block.block_forward[grid](
            static,
            workspace,
            kept,
            *block_weights,
            scale,
            B=fields,
            Z=sizes,
            Y=hours,
            **opts,
            **launching.next(),
        )


@without_warp_groups()
def backward(
    plan: Plan,
    weights: Weights,
    tables: DeviceTables,
    grad_out: Tensor,
    memory: Memory,
    scale: Tensor,
    launching: Launching,
) -> Tensor:
    """The gradient of `forward`'s result -> that of all parameters, flat, in their order."""
    ends.head_backward[(len(grad_out),)](
        grad_out,
        memory.workspace,
        weights.head,
        H=plan.head,
        Z=plan.sizes,
        **options(plan.sizes, stages=1),
        **launching.first(),
    )
    backward_from_last_plane(plan, weights, memory, scale, launching)
    return parameter_gradients(plan.sizes, tables, memory.workspace, launching)


@without_warp_groups()
def train(
    plan: Plan,
    weights: Weights,
    tables: DeviceTables,
    inputs: tuple[Tensor, Tensor, Tensor],
    memory: Memory,
    scale: Tensor,
    drawn: Drawing | None,
    scoring: Scoring,
    squares: Squares,
    launching: Launching,
    loss_taken: Callable[[], None] = lambda: None,
) -> Tensor:
    """Forward, mean quantile loss, backward: all parameters' gradient, flat, in their order."""
    forward_to_last_plane(plan, weights, inputs, memory, scale, drawn, launching)
    sizes, n = plan.sizes, len(memory.workspace)
    ends.head_train[(n,)](
        *scoring,
        n,
        1 / scoring.target.numel(),
        memory.workspace,
        weights.head,
        H=plan.head,
        Z=sizes,
        FEATURES=min(HEAD_CHUNK, sizes.hidden_tile),
        **options(sizes, stages=1),
        **launching.next(),
    )
    loss_taken()
    backward_from_last_plane(plan, weights, memory, scale, launching)
    return parameter_gradients(sizes, tables, memory.workspace, launching, squares)


def backward_from_last_plane(
    plan: Plan, weights: Weights, memory: Memory, scale: Tensor, launching: Launching
) -> None:
    """From the last plane's gradient, in the workspace, to what the parameters' are summed from."""
    workspace, kept = memory
    sizes, grid = plan.sizes, (len(workspace),)
    opts = options(sizes) | launching.next()
    hours = time_mixing_sizes(sizes)
    for fields, block_weights in zip(reversed(plan.blocks), reversed(weights.blocks), strict=True):
        block.block_backward[grid](
            workspace, kept, *block_weights, scale, B=fields, Z=sizes, Y=hours, **opts
        )
    ends.enter_backward[grid](
        workspace, kept, weights.past, weights.future, scale, E=plan.entry, Z=sizes, **opts
    )
