"""The protocol's step on fused kernels: what `Step` computes, in a tenth of the launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from tuner.config import RunConfig
from tuner.data.windows import Batch, DeviceData, DeviceSplit
from tuner.models.fused import FusedTSMixer
from tuner.models.fused.kernel_launch import DRAWN_AT_ONCE, Drawing, Scoring
from tuner.models.fused.kernels.masks import draw_some
from tuner.models.fused.kernels.pieces import follow
from tuner.models.fused.launch_order import PLAIN, Launching
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.fused.adamw import FlatAdamW, FlatParameters, FlatSnapshot
from tuner.training.model_state import Snapshot, copy_together
from tuner.training.stage_marks import Stage
from tuner.training.step import TrainingState

# The windows of a batch, gathered in one launch.


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


RANDOM_STATE = "fused/random_state"
"""What the masks of dropout follow from, beside the weights and the moments in a saved state."""


class Network(Protocol):
    """Computes a model's forecast, and gives that model's parameters their gradients."""

    @property
    def random_state(self) -> Tensor | None:
        """What its masks of dropout follow from; None where that is torch's own generator."""

    def __call__(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q) of float32."""


class FusedStep(TrainingState):
    """Trains the float32 parameters of a model. They lie in one buffer until `release`.

    One that the forecast does not depend on has a gradient of zero here, and decays; torch's
    optimiser passes it over.

    Args:
        config: of the training.
        data: on its device, float32.
        model: on the same device.
        make_network: gives what computes the model's forecast, once the parameters are where they
            stay.
        launching: how its kernels follow each other.
    """

    _optimizer: FlatAdamW

    def __init__(
        self,
        config: RunConfig,
        data: DeviceData,
        model: nn.Module,
        make_network: Callable[[], Network],
        launching: Launching = PLAIN,
    ) -> None:
        self._launching = launching
        self._flat = FlatParameters([p for p in model.parameters() if p.requires_grad])
        super().__init__(config, data, model, capturable=True)
        self._network = make_network()
        state = self._network.random_state
        self._first_random_state = None if state is None else state.clone()

    def train(self, split: DeviceSplit, order: Tensor, size: int, losses: LossSum) -> None:
        """One update of the weights, by the `size` windows of `order` (N,) after those counted."""
        if isinstance(self._network, FusedTSMixer):
            self._train_fused(self._network, split, order, size, losses)
            return
        batch = gather(split, order, losses.done, size, self._launching)
        self.mark(Stage.DATA)
        forecast = self._network(batch.past, batch.future, batch.static).contiguous()
        slope = torch.empty_like(forecast)
        score(
            forecast.detach(),
            batch.target,
            self._quantiles,
            losses,
            slope=slope,
            launching=self._launching,
        )
        self.mark(Stage.FORWARD)
        gradients = torch.autograd.grad(forecast, self._parameters, slope, materialize_grads=True)
        self.mark(Stage.BACKWARD)
        self._optimizer.take(gradients)
        self._optimizer.step()
        self.mark(Stage.OPTIMISER)

    def _train_fused(
        self, network: FusedTSMixer, split: DeviceSplit, order: Tensor, size: int, losses: LossSum
    ) -> None:
        """The same without autograd: masks drawn with the windows, the loss taken in the head.

        The gradient's squares are summed with the gradient. The kernel that takes the loss begins
        the way back: what it does counts as forward.
        """
        begun = network.begin(size)
        batch = gather(split, order, losses.done, size, self._launching, begun.drawing)
        self.mark(Stage.DATA)
        scoring = Scoring(batch.target, self._quantiles, losses.parts, losses.done)
        inputs = (batch.past, batch.future, batch.static)
        gradient = network.gradient(
            begun,
            inputs,
            scoring,
            self._optimizer.squares,
            loss_taken=lambda: self.mark(Stage.FORWARD),
        )
        self.mark(Stage.BACKWARD)
        self._optimizer.update(gradient)
        self.mark(Stage.OPTIMISER)

    @torch.no_grad()
    def validate(self, split: DeviceSplit, order: Tensor, size: int, losses: LossSum) -> None:
        """Only adds the losses of the next `size` windows to `losses`."""
        batch = gather(split, order, losses.done, size, self._launching)
        forecast = self._network(batch.past, batch.future, batch.static).contiguous()
        score(forecast, batch.target, self._quantiles, losses, launching=self._launching)

    @torch.no_grad()
    def renew(self, config: RunConfig, model: TSMixer) -> None:
        """Begin another training of the same sizes, in place, with the fused network in it.

        It differs in learning rate, weight decay, clipping, dropout and seed: torch's present one.

        Args:
            config: of that training.
            model: its network on the CPU, as built.

        Raises:
            ValueError: a network of other sizes, or one that drops out and this does not.
        """
        assert isinstance(self._network, FusedTSMixer), "no other network reads its dropout"
        self._config = config
        self._flat.fill([p for p in model.parameters() if p.requires_grad])
        copy_together(list(self.model.buffers()), list(model.buffers()))
        self._network.begin_draws(model.past_mixing.dropout)
        self._first_random_state = self._network.random_state.clone()
        self.reset_optimizer()

    def forget_batch(self) -> None:
        """Let go of what the latest pass left for whoever looks at its masks."""
        if isinstance(self._network, FusedTSMixer):
            self._network.last_masks = None

    def snapshot(self) -> Snapshot:
        """A copy of the model as it is now."""
        return FlatSnapshot(self.model, self._flat)

    def reset_optimizer(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None  # `zero_grad` would import torch's compiler: a second
        self._optimizer.reset(
            weight_decay=self._config.hyperparameters.weight_decay,
            limit=self._config.training.gradient_clip,
        )
        if self._network.random_state is not None and self._first_random_state is not None:
            self._network.random_state.copy_(self._first_random_state)

    def state(self) -> dict[str, Tensor]:
        state = self._network.random_state
        return super().state() | ({} if state is None else {RANDOM_STATE: state})

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Also a `Step`'s state: it lacks these kernels' random state, which stays as it is."""
        steps = [float(tensor) for name, tensor in tensors.items() if name.endswith("/step")]
        if len(set(steps)) > 1 or len(steps) not in (0, len(self._parameters)):
            raise ValueError("its parameters took different numbers of steps")
        held = self._network.random_state
        given = None if held is None else tensors.get(RANDOM_STATE, held)
        if (
            held is not None
            and given is not None
            and (given.shape != held.shape or given.dtype != held.dtype)
        ):
            raise ValueError("the random state of the fused kernels does not fit")
        super().load(tensors)
        if held is not None and given is not None:
            held.copy_(given)

    def release(self) -> None:
        self._flat.release()
        self.discard()

    def discard(self) -> None:
        """Release that leaves the model's parameters where they are: it is given up, too."""
        super().release()
        del self._optimizer, self._network, self._flat  # and with them their buffers

    def _new_optimizer(self) -> FlatAdamW:
        assert self._learning_rate is not None, "it is captured"
        return FlatAdamW(
            self._flat,
            self._learning_rate,
            weight_decay=self._config.hyperparameters.weight_decay,
            limit=self._config.training.gradient_clip,
            launching=self._launching,
        )
