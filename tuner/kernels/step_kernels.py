"""A training step's kernels beside the network's: gather, loss, optimiser, in few launches.

Only imported where a training runs on them: they need Triton, which comes with torch for CUDA.

Legend of the kernels here: B windows of a batch, N of a split, R rows of its series, L
input hours, T horizon, C targets, K = targets + past + future covariates, F future covariates, S
static covariates, Q quantiles. Pointers are to float32 where nothing else is said; `block` numbers
are a program's share; `early`: the kernel starts before the one before has ended (see
`tuner.kernels.pieces`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from tuner.data.windows import Batch, DeviceSplit
from tuner.kernels.kernel_launch import DRAWN_AT_ONCE, SUMMED_AT_ONCE, n_programs
from tuner.kernels.launch_order import PLAIN, Drawing, Launching, Squares
from tuner.kernels.pieces import draw_some, follow
from tuner.kernels.plan import layout_of, whole_of

BLOCK = 1024
"""Numbers of a program."""

# The windows of a batch, gathered in one launch.


@triton.jit
def _copy(
    source: tl.tensor, rows: tl.tensor, row: tl.tensor, length: tl.constexpr, block: tl.constexpr
) -> None:
    """`length` numbers at `source`, into a row of `rows`, which is as long."""
    for first in tl.static_range(0, length, block):
        at = first + tl.arange(0, block)
        inside = at < length
        value = tl.load(source + at, mask=inside)
        tl.store(rows + row * length + at, value, mask=inside)


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
        # One window: its hours are rows one after the other, so each part is one run of memory.
        row = program.to(tl.int64)
        window = tl.load(order + tl.load(done) + row)
        first = tl.load(starts + window)
        ahead = first + input_size
        _copy(history + first * n_columns, to_past, row, input_size * n_columns, block)
        _copy(targets + ahead * n_targets, to_target, row, horizon * n_targets, block)
        if n_future > 0:
            _copy(future + ahead * n_future, to_future, row, horizon * n_future, block)
        if n_static > 0:
            known = static + tl.load(series + window) * n_static
            _copy(known, to_static, row, n_static, block)


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
    _gather[(size + (0 if drawing is None else n_programs(drawing)),)](
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


# The protocol's loss and its slope along the forecast, in one launch that adds up the losses.


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


# AdamW with clipped gradients over all parameters at once: two launches whatever their number.
#
# Parameters, gradients and moments lie one after the other in flat buffers. The first launch sums
# squares, one sum per program; in the second every program adds those sums in the same order, so
# that all clip by the same bits every time. Of a gradient that the fused network made the squares
# are summed where it was: then only the second is launched.
#
# Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019; constants as
# torch.optim.AdamW's.

# Parameters that lie one after the other in one buffer, each still its own `nn.Parameter`.


class FlatParameters:
    """Moves float32 parameters of one device into one buffer; gaps between them hold zeros.

    What refers to a parameter sees no change; what took its address before does.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        wrong = {str(p.dtype) for p in self.parameters} - {"torch.float32"}
        if wrong:
            raise ValueError(f"parameters are {', '.join(sorted(wrong))}, not torch.float32")
        self.layout = layout_of(self.parameters)
        self.values, views = self.another()
        for parameter, view in zip(self.parameters, views, strict=True):
            view.copy_(parameter.detach())
            parameter.data = view

    def another(self) -> tuple[Tensor, list[Tensor]]:
        """A buffer of zeros of the same layout, and its views in the parameters' shapes."""
        buffer = torch.zeros(self.layout.size, device=self.parameters[0].device)
        return buffer, self.layout.views(buffer, self.parameters)

    @torch.no_grad()
    def fill(self, parameters: Sequence[nn.Parameter]) -> None:
        """Take on the values of others, on the CPU, in one transfer.

        Raises:
            ValueError: they are of other shapes; nothing was changed.
        """
        if [p.shape for p in parameters] != [p.shape for p in self.parameters]:
            raise ValueError("these are another network's parameters")
        values = torch.zeros(self.layout.size)
        torch._foreach_copy_(self.layout.views(values, self.parameters), list(parameters))
        self.values.copy_(values)

    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for parameter in self.parameters:
            parameter.data = parameter.detach().clone()


BETA_1, BETA_2 = 0.9, 0.999
EPS = 1e-8
CLIP_EPS = 1e-6
"""As torch.nn.utils.clip_grad_norm_ has it."""


@triton.jit
def _sum_squares(
    gradients: tl.tensor,
    sums: tl.tensor,
    step: tl.tensor,
    n: tl.tensor,
    block: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """gradients: (n,). sums: (programs,) gets each one's sum of squares; step: () is one more."""
    follow(early)
    program = tl.program_id(0)
    at = program * block + tl.arange(0, block)
    gradient = tl.load(gradients + at, mask=at < n, other=0.0)
    tl.store(sums + program, tl.sum(gradient * gradient))
    if program == 0:
        tl.store(step, tl.load(step) + 1)


@triton.jit
def _update(
    values: tl.tensor,
    gradients: tl.tensor,
    averages: tl.tensor,
    squares: tl.tensor,
    sums: tl.tensor,
    step: tl.tensor,
    learning_rate: tl.tensor,
    n: tl.tensor,
    weight_decay: tl.tensor,
    limit: tl.tensor,
    log_beta_1: tl.constexpr,
    log_beta_2: tl.constexpr,
    beta_1: tl.constexpr,
    beta_2: tl.constexpr,
    eps: tl.constexpr,
    clip_eps: tl.constexpr,
    n_sums: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """One program for `block` of n parameters.

    values, gradients, averages (first moments) and squares (second moments): (n,). sums: (n_sums,),
    of the gradients' squares. step: (), which step this is. learning_rate, weight_decay: (). limit:
    (), what the gradients' norm is clipped to.
    """
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    # What this kernel alone writes is read while the one before still runs.
    average = tl.load(averages + at, mask=inside, other=0.0)
    square = tl.load(squares + at, mask=inside, other=0.0)
    value = tl.load(values + at, mask=inside, other=0.0)
    rate = tl.load(learning_rate)
    decay = tl.load(weight_decay)
    most = tl.load(limit)
    follow(early)
    steps = tl.load(step).to(tl.float64)
    norm = tl.sqrt_rn(tl.sum(tl.load(sums + tl.arange(0, n_sums))))
    clip = tl.div_rn(most, norm + clip_eps)
    clip = tl.where(clip > 1, 1.0, clip)  # in this order a norm that is no number stays none

    # In double precision: 1 - 0.999 has but four digits left in single precision.
    size = (rate.to(tl.float64) / (1 - tl.exp(steps * log_beta_1))).to(tl.float32)
    spread = tl.sqrt(1 - tl.exp(steps * log_beta_2)).to(tl.float32)

    gradient = tl.load(gradients + at, mask=inside, other=0.0) * clip
    average += (1 - beta_1) * (gradient - average)
    square = beta_2 * square + (1 - beta_2) * gradient * gradient
    value -= rate * decay * value
    value -= size * tl.div_rn(average, tl.div_rn(tl.sqrt_rn(square), spread) + eps)
    tl.store(averages + at, average, mask=inside)
    tl.store(squares + at, square, mask=inside)
    tl.store(values + at, value, mask=inside)


class FlatAdamW(torch.optim.Optimizer):
    """Its state reads as torch's does: `state[parameter]` holds views of the flat buffers.

    Args:
        flat: the parameters, float32.
        learning_rate: (), float32, on their device; may be changed in place between two steps.
        weight_decay: decoupled.
        limit: what the norm of all gradients is clipped to.
        launching: how its kernels follow others.
    """

    # Without torch's wrapper, which imports a compiler: seconds of a process's first set-up.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)

    def __init__(
        self,
        flat: FlatParameters,
        learning_rate: Tensor,
        *,
        weight_decay: float,
        limit: float,
        launching: Launching = PLAIN,
    ) -> None:
        super().__init__(flat.parameters, {"lr": learning_rate})
        self._flat = flat
        self._launching = launching
        self._learning_rate = learning_rate
        device = flat.values.device
        # In memory: the same captured step serves trainings of other settings.
        self._weight_decay = torch.full((), weight_decay, dtype=torch.float32, device=device)
        self._limit = torch.full((), limit, dtype=torch.float32, device=device)
        self._copies, self._copy_views = flat.another()
        self._gradients = self._copies
        self._averages, averages = flat.another()
        self._squares, squares = flat.another()
        self._programs = triton.cdiv(flat.values.numel(), BLOCK)
        # As many as a program adds up at once, and as either kernel has programs; others stay 0.
        n_sums = triton.cdiv(flat.values.numel(), min(BLOCK, SUMMED_AT_ONCE))
        self._sums = torch.zeros(triton.next_power_of_2(n_sums), device=device)
        self._step = torch.zeros((), device=device)
        for parameter, average, square in zip(flat.parameters, averages, squares, strict=True):
            self.state[parameter] = {"step": self._step, "exp_avg": average, "exp_avg_sq": square}

    @torch.no_grad()
    def reset(self, *, weight_decay: float, limit: float) -> None:
        """As one that has seen nothing, with these settings, in place."""
        for tensor in (self._averages, self._squares, self._step):
            tensor.zero_()
        self._weight_decay.fill_(weight_decay)
        self._limit.fill_(limit)

    def take(self, gradients: Sequence[Tensor]) -> None:
        """Have the next step go by these, one for each parameter.

        Where they lie in one buffer as the parameters do, gaps filled with zeros, they are not
        copied.
        """
        whole = whole_of(gradients, self._flat.layout)
        if whole is None:
            torch._foreach_copy_(self._copy_views, list(gradients))
        self._gradients = self._copies if whole is None else whole

    @property
    def squares(self) -> Squares:
        """Where `update` finds the gradient's squares and the step's number: for who sums them."""
        return Squares(self._sums, self._step)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update by the gradients taken. Nothing waits for the host: it can be captured."""
        assert closure is None, "losses are not evaluated here"
        n = self._flat.values.numel()
        _sum_squares[(self._programs,)](
            self._gradients, self._sums, self._step, n, BLOCK, **self._launching.first()
        )
        self.update(self._gradients)

    @torch.no_grad()
    def update(self, gradient: Tensor) -> None:
        """The rest of a step that has its squares summed; `gradient` lies as the parameters do."""
        _update[(self._programs,)](
            self._flat.values,
            gradient,
            self._averages,
            self._squares,
            self._sums,
            self._step,
            self._learning_rate,
            self._flat.values.numel(),
            self._weight_decay,
            self._limit,
            math.log(BETA_1),
            math.log(BETA_2),
            BETA_1,
            BETA_2,
            EPS,
            CLIP_EPS,
            len(self._sums),
            BLOCK,
            **self._launching.next(),
        )
