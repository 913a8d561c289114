"""The windows of a batch, gathered in one launch.

What the kernel is given, with the letters of this folder's legend:

    order                (N,), int64: numbers of windows
    done                 (), int64: how many of them were before
    starts, series       (N,), int64: a window's first row, and its series
    history, targets     (R, K), (R, C); future (R, F); static (series, S)
    to_past, to_target   (B, L, K), (B, T, C); to_future (B, T, F); to_static (B, S)
    masks, state         (n_masks,), bytes; (2,), int64: see `kernels.masks`
    n_dropped            (), int32: see there
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from tuner.data.windows import Batch, DeviceSplit
from tuner.models.fused.kernel_launch import DRAWN_AT_ONCE, Drawing
from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.kernels.masks import draw_some
from tuner.models.fused.launch_order import PLAIN, Launching

BLOCK = 1024


@triton.jit
def _copy(source: tl.tensor, target: tl.tensor, length: tl.constexpr, block: tl.constexpr) -> None:
    for first in tl.static_range(0, length, block):
        at = first + tl.arange(0, block)
        inside = at < length
        tl.store(target + at, tl.load(source + at, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["n_masks"])
def _gather(
    order: tl.tensor,
    done: tl.tensor,
    starts: tl.tensor,
    series: tl.tensor,
    history: tl.tensor,
    targets: tl.tensor,
    future: tl.tensor,
    static: tl.tensor,
    to_past: tl.tensor,
    to_target: tl.tensor,
    to_future: tl.tensor,
    to_static: tl.tensor,
    masks: tl.tensor,
    state: tl.tensor,
    n_windows: tl.tensor,
    n_masks: tl.tensor,
    n_dropped: tl.tensor,
    input_size: tl.constexpr,
    horizon: tl.constexpr,
    n_columns: tl.constexpr,
    n_targets: tl.constexpr,
    n_future: tl.constexpr,
    n_static: tl.constexpr,
    block: tl.constexpr,
    draws: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """One program a window, and where there are masks to draw the programs of that after them."""
    follow(early)
    program = tl.program_id(0)
    if draws > 0 and program >= n_windows:
        draw_some(masks, state, program - n_windows, n_masks, n_dropped, draws)
    else:
        _gather_one(
            program.to(tl.int64),
            order,
            done,
            starts,
            series,
            history,
            targets,
            future,
            static,
            to_past,
            to_target,
            to_future,
            to_static,
            input_size,
            horizon,
            n_columns,
            n_targets,
            n_future,
            n_static,
            block,
        )


@triton.jit
def _gather_one(
    row: tl.tensor,
    order: tl.tensor,
    done: tl.tensor,
    starts: tl.tensor,
    series: tl.tensor,
    history: tl.tensor,
    targets: tl.tensor,
    future: tl.tensor,
    static: tl.tensor,
    to_past: tl.tensor,
    to_target: tl.tensor,
    to_future: tl.tensor,
    to_static: tl.tensor,
    input_size: tl.constexpr,
    horizon: tl.constexpr,
    n_columns: tl.constexpr,
    n_targets: tl.constexpr,
    n_future: tl.constexpr,
    n_static: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One window: its hours are rows one after the other, so each part is one run of memory."""
    window = tl.load(order + tl.load(done) + row)
    first = tl.load(starts + window)
    ahead = first + input_size
    _copy(
        history + first * n_columns,
        to_past + row * (input_size * n_columns),
        input_size * n_columns,
        block,
    )
    _copy(
        targets + ahead * n_targets,
        to_target + row * (horizon * n_targets),
        horizon * n_targets,
        block,
    )
    if n_future > 0:
        _copy(
            future + ahead * n_future,
            to_future + row * (horizon * n_future),
            horizon * n_future,
            block,
        )
    if n_static > 0:
        _copy(
            static + tl.load(series + window) * n_static,
            to_static + row * n_static,
            n_static,
            block,
        )


def gather(
    split: DeviceSplit,
    order: Tensor,
    done: Tensor,
    size: int,
    launching: Launching = PLAIN,
    drawing: Drawing | None = None,
) -> Batch:
    """What `split.gather(order[done : done + size])` gives, with `done` read on the device.

    Args:
        split: with contiguous tensors.
        order: (N,) int64, numbers of windows.
        done: (), int64.
        size: windows in the batch, at least 1 and at most what is left of `order`.
        launching: how kernels follow it: it is the first of a step.
        drawing: masks to draw in the same launch.
    """
    n_columns, n_targets = split.history.shape[1], split.targets.shape[1]
    input_size, horizon = split.past_steps.shape[1], split.future_steps.shape[1]
    new = split.history.new_empty
    past, target = new(size, input_size, n_columns), new(size, horizon, n_targets)
    future = None if split.future is None else new(size, horizon, split.future.shape[1])
    static = None if split.static is None else new(size, split.static.shape[1])
    # Any pointer stands for a part that the task lacks: the kernel is compiled without it.
    _gather[(size + (0 if drawing is None else drawing.n_programs),)](
        order,
        done,
        split.starts,
        split.series_index,
        split.history,
        split.targets,
        split.history if split.future is None else split.future,
        split.history if split.static is None else split.static,
        past,
        target,
        past if future is None else future,
        past if static is None else static,
        past if drawing is None else drawing.masks,
        order if drawing is None else drawing.state,
        size,
        0 if drawing is None else drawing.masks.numel(),
        order if drawing is None else drawing.n_dropped,
        input_size,
        horizon,
        n_columns,
        n_targets,
        0 if future is None else future.shape[2],
        0 if static is None else static.shape[1],
        BLOCK,
        0 if drawing is None else DRAWN_AT_ONCE,
        **launching.first(),
    )
    return Batch(past=past, future=future, static=static, target=target)
