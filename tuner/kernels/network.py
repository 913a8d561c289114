"""The fused network: a `TSMixer`'s parameters, run through the kernels, and what they serve."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tuner.config import Precision
from tuner.kernels.launch_order import PLAIN, Drawing, Launching, Pass, Scoring, Squares
from tuner.kernels.plan import ALIGNMENT, Layout, make_plan, tables_on, weights_of
from tuner.models.layers import FeatureRMSNorm
from tuner.models.tsmixer import FeatureMixing, TSMixer

# What the fused kernels serve, and in one line what they do not.


LARGEST_HIDDEN_SIZE = 256
LONGEST_HORIZON = 64
MOST_COLUMNS = 64
"""Of a window's own features, before they are mixed: targets and covariates together."""


def why_not(model: nn.Module, precision: Precision, device: torch.device) -> str | None:
    """Why the fused kernels cannot run this network here; None where they can.

    Args:
        model: any network, on any device.
        precision: of its products.
        device: where it is to run.
    """
    # A class derived from it may compute something else.
    if type(model) is not TSMixer:
        return (
            "the fused kernels are written for the built-in networks, "
            f"this one is {type(model).__name__}"
        )
    return _why_not_the_sizes(model) or _why_not_here(model, precision, device)


def _why_not_the_sizes(model: TSMixer) -> str | None:
    shapes, mixing = model.shapes, model.past_mixing
    hidden_size = mixing.contract.weight.shape[0]  # type: ignore[index]
    n_columns = max(shapes.n_targets + shapes.n_past + shapes.n_future, shapes.n_static)
    objections = {
        f"know no {type(mixing.norm).__name__}": not isinstance(
            mixing.norm, nn.LayerNorm | FeatureRMSNorm
        ),
        f"need a feed-forward size of {hidden_size}, the hidden size, it is {mixing.widths[0]}": (
            mixing.widths[0] != hidden_size
        ),
        f"go up to a hidden size of {LARGEST_HIDDEN_SIZE}, it is {hidden_size}": hidden_size
        > LARGEST_HIDDEN_SIZE,
        f"need a hidden size that is a multiple of {ALIGNMENT}, it is {hidden_size}": hidden_size
        % ALIGNMENT
        != 0,
        f"go up to a horizon of {LONGEST_HORIZON}, it is {shapes.horizon}": shapes.horizon
        > LONGEST_HORIZON,
        f"take up to {MOST_COLUMNS} columns, there are {n_columns}": n_columns > MOST_COLUMNS,
        f"do not take as many covariates as the hidden size, {hidden_size}": any(
            len(entering.widths) == 1 for entering in _entering(model)
        ),
    }
    return next((f"the fused kernels {text}" for text, holds in objections.items() if holds), None)


def _entering(model: TSMixer) -> list[FeatureMixing]:
    """The mixings of raw columns, whose width is the task's."""
    static = [getattr(block, "static_mixing", None) for block in model.blocks]
    return [
        mixing
        for mixing in (model.past_mixing, model.future_mixing, *static)
        if isinstance(mixing, FeatureMixing)
    ]


def _why_not_here(model: TSMixer, precision: Precision, device: torch.device) -> str | None:
    if precision.half:
        return f"the fused kernels compute in fp32 or tf32, not in {precision.value}"
    dtype = next(model.parameters()).dtype
    if dtype != torch.float32:
        return f"the fused kernels are written for float32 parameters, these are {dtype}"
    if importlib.util.find_spec("triton") is None:
        return "the fused kernels need triton, which is not installed (torch for CUDA brings it)"
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"the fused kernels need a CUDA device, this one is {device.type}"


# The rate of dropout that the fused kernels realise: the nearest multiple of 2^-16.


LEVELS = 1 << 16
"""Of the random number that decides on an element."""


def dropped_of_levels(rate: float) -> int:
    """How many of the levels drop an element; some always keep it."""
    return min(round(rate * LEVELS), LEVELS - 1)


def drops_out(rate: float) -> bool:
    """Whether anything is dropped at all: where not, the kernels know no masks."""
    return dropped_of_levels(rate) > 0


# The fused network: a `TSMixer`'s parameters, run through the kernels.


PRODUCTS = {Precision.FP32: "tf32x3", Precision.TF32: "tf32"}
"""How Triton multiplies: three TF32 products come close to fp32's own accuracy."""

WITHOUT_GRADIENT = 1024
"""Samples at once where nothing is kept for a backward pass."""


class FusedTSMixer:
    """Computes what `model` computes, and its parameters' gradients. It owns no parameters.

    Whether it drops out is the model's own `training` flag. Masks come from a counter-based
    generator on the device: `random_state`, (2,) int64, holds its seed and how often masks were
    drawn. A replayed CUDA graph draws fresh ones; keep the tensor and write it back in place to go
    on from a checkpoint. The rate is the nearest multiple of 2^-16; it lies on the device, too,
    and may change between two replays, but not to or from 0.

    The gradients are views of one flat tensor in the order of `model.parameters()`, laid out by
    `layout_of`, with zeros in its gaps; the same inputs, weights and random state give the same
    bits.

    Args:
        model: one that `why_not` has nothing against, on its device.
        precision: of the matrix products; FP32 or TF32.
        products: Triton's own name for it, instead: `ieee`, `tf32x3` or `tf32`.
        launching: how its kernels follow each other.

    Attributes:
        masks: (B, mask record) of bytes to use instead of fresh ones, for tests; `masks_by_use`
            gives those of a call.
    """

    def __init__(
        self,
        model: TSMixer,
        precision: Precision = Precision.FP32,
        products: str | None = None,
        launching: Launching = PLAIN,
    ) -> None:
        self.model = model
        self.launching = launching
        device = next(model.parameters()).device
        self.masks: Tensor | None = None
        self.last_masks: Tensor | None = None
        self.random_state = torch.zeros(2, dtype=torch.int64, device=device)
        self.n_dropped = torch.zeros((), dtype=torch.int32, device=device)
        self.scale = torch.zeros((), device=device)
        self._drops = drops_out(model.past_mixing.dropout)
        self.begin_draws(model.past_mixing.dropout)
        products = PRODUCTS[precision] if products is None else products
        self.plan = make_plan(model, products, dropout=False)
        self._dropping_plan = make_plan(model, products, dropout=True)
        self.tables = tables_on(device, model, self.plan)
        self.weights = weights_of(model)
        self._parameters = tuple(model.parameters())

    def __call__(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q), as `TSMixer` has it.

        Raises:
            ValueError: inputs that do not fit the network.
        """
        inputs = self._checked(past, future, static)
        if torch.is_grad_enabled():
            forecast: Tensor = _Fused.apply(self, inputs, *self._parameters)  # type: ignore[no-untyped-call]
            return forecast
        chunks = zip(*(torch.split(tensor, WITHOUT_GRADIENT) for tensor in inputs), strict=True)
        return torch.cat([self._forward(Inputs(*chunk))[0] for chunk in chunks])

    @property
    def layout(self) -> Layout:
        """Of a flat gradient."""
        return self.tables.layout

    def begin_draws(self, rate: float) -> None:
        """Draw masks from the first one on, under torch's present seed, as a new network does.

        Args:
            rate: of dropout, in [0, 1); where it was 0 it stays 0, and nowhere else.
        """
        if drops_out(rate) != self._drops:
            raise ValueError(f"a dropout of {rate} takes a network of its own")
        n_dropped = dropped_of_levels(rate)
        self.random_state.copy_(torch.tensor([torch.initial_seed() % 2**63, 0]))
        self.n_dropped.fill_(n_dropped)
        self.scale.fill_(LEVELS / (LEVELS - n_dropped))

    def begin(self, n: int) -> Pass:
        """A pass over n samples, whose masks are still to be drawn."""
        dropping = self.model.training and self._drops
        plan, device = self._dropping_plan if dropping else self.plan, self.random_state.device
        masks = torch.empty(n, plan.sizes.mask_record, dtype=torch.uint8, device=device)
        drawing = None
        if dropping and self.masks is not None:
            masks.copy_(self.masks)
        elif dropping:
            drawing = Drawing(masks, self.random_state, self.n_dropped)
        self.last_masks = masks if dropping else None
        workspace = torch.empty(n, plan.sizes.record, device=device)
        return Pass(plan, self.weights, workspace, masks, drawing, self.scale, self.launching)

    @torch.no_grad()
    def gradient(
        self,
        begun: Pass,
        inputs: tuple[Tensor, Tensor | None, Tensor | None],
        scoring: Scoring,
        squares: Squares,
        *,
        loss_taken: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """The gradient of a batch's mean quantile loss: flat, as `layout_of` has it, 0 in its gaps.

        Adds the losses up in `scoring`, and leaves in `squares` what the norm is the root of; no
        autograd. `loss_taken` is called once the kernel that takes the loss is launched.
        """
        from tuner.kernels import kernel_launch as launch

        given = self._checked(*inputs)
        return launch.train(begun, self.tables, given, scoring, squares, loss_taken)

    def masks_by_use(self) -> list[Tensor]:
        """The masks of the last call, (B, T, features) each, in the order of the plain network."""
        masks = self.last_masks
        assert masks is not None, "called before, in training"
        horizon = self.plan.sizes.horizon
        return [
            masks[:, at : at + horizon * n].reshape(-1, horizon, n) for at, n in self.plan.masks
        ]

    def _checked(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Inputs:
        """The inputs as the kernels read them: contiguous, and empty where the network has none."""
        sizes, n = self.plan.sizes, len(past)
        given = {
            "past": (past, (n, sizes.length, sizes.columns)),
            "future": (future, (n, sizes.horizon, sizes.future)),
            "static": (static, (n, sizes.static)),
        }
        checked = []
        for name, (found, shape) in given.items():
            tensor = past.new_empty(n, *shape[1:-1], 0) if found is None else found
            if (
                tuple(tensor.shape) != shape
                or tensor.dtype != torch.float32
                or tensor.requires_grad
            ):
                raise ValueError(
                    f"{name} must be {shape} of float32 without a gradient, "
                    f"not {tuple(tensor.shape)}"
                )
            checked.append(tensor.contiguous())
        return Inputs(*checked)

    def _forward(self, inputs: Inputs) -> tuple[Tensor, Pass]:
        from tuner.kernels import kernel_launch as launch

        this = self.begin(len(inputs.past))
        if this.drawing is not None:
            launch.draw_masks(this.drawing, self.launching)
        return launch.forward(this, inputs), this

    def _backward(self, this: Pass, grad_out: Tensor) -> list[Tensor]:
        from tuner.kernels import kernel_launch as launch

        flat = launch.backward(this, self.tables, grad_out.contiguous())
        return self.tables.layout.views(flat, self._parameters)


class Inputs(NamedTuple):
    """Of a batch: (B, L, C + P + F), (B, T, F), (B, S)."""

    past: Tensor
    future: Tensor
    static: Tensor


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, network: FusedTSMixer, inputs: Inputs, *parameters: Tensor) -> Tensor:
        forecast, this = network._forward(inputs)  # noqa: SLF001 (one module, one idea)
        # Saved, so that autograd notices a weight that is changed before the backward pass.
        ctx.save_for_backward(*parameters)
        ctx.network, ctx.this = network, this
        return forecast

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        return None, None, *ctx.network._backward(ctx.this, gradients[0])  # noqa: SLF001
