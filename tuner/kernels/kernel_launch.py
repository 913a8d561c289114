"""Starts the network's kernels: which, in which order, with how many programs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tuner.kernels import block, ends, pieces
from tuner.kernels.launch_order import Drawing, Launching, Pass, Scoring, Squares
from tuner.kernels.plan import ALIGNED, TILE, DeviceTables, Sizes, columns_of
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


def parameter_gradients(this: Pass, tables: DeviceTables, squares: Squares | None = None) -> Tensor:
    """What the records hold, summed over the samples; the sums of squares too where wanted."""
    workspace, launching = this.workspace, this.launching
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
        Z=this.plan.sizes,
        SAMPLES=per_split,
        OUTPUTS=TILE,
        INPUTS=TILE,
        FAR=workspace.numel() >= 1 << 31,
        num_warps=2,  # four take wgmma for a tile of 64 x 64: TF32 only along the summed axis
        maxnreg=168,  # six programs a multiprocessor, and no spills
        num_stages=3,
        **launching.next(),
    )
    # On a side of their own they begin when all before has ended.
    apart = launching.next() if launching.side is None else launching.first()
    with launching.on_side():
        for n_rows, table in tables.columns.items():
            together = max(1, COLUMN_SAMPLES // per_split) if n_rows == 1 else 1
            sum_columns[len(table), -(-n_splits // together)](
                table,
                workspace,
                partial,
                n_samples,
                n,
                n_splits,
                RECORD=this.plan.sizes.record,
                ROWS=n_rows,
                SAMPLES=per_split,
                SPLITS=together,
                ROWS_AT_ONCE=4 if n_rows == 1 else 32,
                BLOCK=columns_of(n_rows),
                **apart,
            )
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
        **apart,
    )
    return gradient


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


def n_programs(drawing: Drawing) -> int:
    """That draw the masks."""
    per_program: int = DRAWN_AT_ONCE * pieces.PER_DRAW.value
    return -(-drawing.masks.numel() // per_program)


def draw_masks(drawing: Drawing, launching: Launching) -> None:
    """Fill the masks. `enter_forward` counts the draw: while they are drawn, all read the count."""
    pieces.draw_masks[(n_programs(drawing),)](
        drawing.masks,
        drawing.state,
        drawing.masks.numel(),
        drawing.n_dropped,
        BLOCK=DRAWN_AT_ONCE,
        **launching.first(),
    )


Inputs = tuple[Tensor, Tensor, Tensor]
"""(B, L, K), (B, T, F), (B, S)."""


@without_warp_groups()
def forward(this: Pass, inputs: Inputs) -> Tensor:
    """Inputs and a pass for as many samples -> (B, T, C, Q)."""
    forward_to_last_plane(this, inputs)
    sizes, n = this.plan.sizes, len(this.workspace)
    shape = n, sizes.horizon, sizes.targets, sizes.levels
    out = torch.empty(shape, dtype=torch.float32, device=this.workspace.device)
    once = sizes._replace(chunk=min(HEAD_CHUNK, sizes.hidden_tile))
    opts = options(sizes) | this.launching.next()
    head = this.weights.head
    ends.head_forward[(n,)](out, this.workspace, head, H=this.plan.head, Z=once, **opts)
    return out


def forward_to_last_plane(this: Pass, inputs: Inputs) -> None:
    """From the windows to the last plane, in the workspace."""
    past, future, static = inputs
    plan, weights, workspace, masks, drawing, scale, launching = this
    grid, hours = (len(past),), time_mixing_sizes(plan.sizes)
    ends.enter_forward[grid](
        past,
        future,
        workspace,
        masks,
        masks if drawing is None else drawing.state,
        weights.entry,
        weights.past,
        weights.future,
        scale,
        E=plan.entry,
        Z=plan.sizes,
        DRAWN=drawing is not None,
        **options(plan.sizes, stages=1),
        **(launching.first() if drawing is None else launching.next()),
    )
    opts = options(plan.sizes) | launching.next()
    for fields, of_block in zip(plan.blocks, weights.blocks, strict=True):
        block.block_forward[grid](
            static, workspace, masks, *of_block, scale, B=fields, Z=plan.sizes, Y=hours, **opts
        )


@without_warp_groups()
def backward(this: Pass, tables: DeviceTables, grad_out: Tensor) -> Tensor:
    """The gradient of `forward`'s result -> that of all parameters, flat, in their order."""
    opts = options(this.plan.sizes, stages=1) | this.launching.first()
    head, Z = this.weights.head, this.plan.sizes  # noqa: N806 - the kernel's own name
    ends.head_backward[(len(grad_out),)](
        grad_out, this.workspace, head, H=this.plan.head, Z=Z, **opts
    )
    backward_from_last_plane(this)
    return parameter_gradients(this, tables)


@without_warp_groups()
def train(
    this: Pass,
    tables: DeviceTables,
    inputs: Inputs,
    scoring: Scoring,
    squares: Squares,
    loss_taken: Callable[[], None],
) -> Tensor:
    """Forward, mean quantile loss, backward: all parameters' gradient, flat, in their order."""
    forward_to_last_plane(this, inputs)
    sizes, n = this.plan.sizes, len(this.workspace)
    ends.head_train[(n,)](
        *scoring,
        n,
        1 / scoring.target.numel(),
        this.workspace,
        this.weights.head,
        H=this.plan.head,
        Z=sizes,
        FEATURES=min(HEAD_CHUNK, sizes.hidden_tile),
        **options(sizes, stages=1),
        **this.launching.next(),
    )
    loss_taken()
    backward_from_last_plane(this)
    return parameter_gradients(this, tables, squares)


def backward_from_last_plane(this: Pass) -> None:
    """From the last plane's gradient, in the workspace, to what the parameters' are summed from."""
    plan, weights, workspace, masks, _, scale, launching = this
    sizes, grid = plan.sizes, (len(workspace),)
    opts = options(sizes) | launching.next()
    hours = time_mixing_sizes(sizes)
    for fields, of_block in zip(reversed(plan.blocks), reversed(weights.blocks), strict=True):
        block.block_backward[grid](
            workspace, masks, *of_block, scale, B=fields, Z=sizes, Y=hours, **opts
        )
    ends.enter_backward[grid](
        workspace, masks, weights.past, weights.future, scale, E=plan.entry, Z=sizes, **opts
    )
