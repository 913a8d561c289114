"""AdamW with clipped gradients over all parameters at once: two launches whatever their number.

Parameters, gradients and moments lie one after the other in flat buffers. The first launch sums
squares, one sum per program; in the second every program adds those sums in the same order, so that
all clip by the same bits every time. Of a gradient that the fused network made the squares are
summed where it was: then only the second is launched.

Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019; constants as
    torch.optim.AdamW's.
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

from tuner.models.fused.kernel_launch import SUMMED_AT_ONCE, Squares
from tuner.models.fused.kernels.pieces import follow
from tuner.models.fused.launch_order import PLAIN, Launching
from tuner.models.fused.weights import layout_of, whole_of
from tuner.training.model_state import Snapshot, copy_together, model_state
from tuner.training.step import CLIP_EPS

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
        copy_together(self.layout.views(values, self.parameters), parameters)
        self.values.copy_(values)

    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for parameter in self.parameters:
            parameter.data = parameter.detach().clone()


class FlatSnapshot(Snapshot):
    """Of a model most of whose parameters lie in one buffer: that is taken in one copy.

    Its copies lie as the parameters do.
    """

    def __init__(self, model: nn.Module, flat: FlatParameters) -> None:
        self._flat = flat
        self._values = flat.values.clone()
        views = flat.layout.views(self._values, flat.parameters)
        places = {
            id(parameter): view for parameter, view in zip(flat.parameters, views, strict=True)
        }
        self._copies = []
        self._apart: list[int] = []
        """Numbers of what does not lie there: buffers, and parameters that are not trained."""
        for number, tensor in enumerate(model_state(model)):
            if (view := places.get(id(tensor))) is None:
                self._apart.append(number)
                view = tensor.detach().clone()
            self._copies.append(view)

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        self._values.copy_(self._flat.values)
        if self._apart:
            present = model_state(model)
            copy_together([self._copies[n] for n in self._apart], [present[n] for n in self._apart])


BLOCK = 1024
BETA_1, BETA_2 = 0.9, 0.999
EPS = 1e-8


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
