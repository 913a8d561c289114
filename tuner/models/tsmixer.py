"""TSMixer with covariates: small shared layers mix features and hours of a window in turns.

One skeleton for every built-in variant. What varies is composed in by a `Design`: the layout of a
plane, and the norm after each mixing step.

Source: Chen et al., "TSMixer: An All-MLP Architecture for Time Series Forecasting", TMLR 2023
(arXiv:2303.06053), the extended form with auxiliary information; sizes, order of the steps and the
output head as in the protocol.

Legend: B batch, L input hours, T horizon, C targets, P past covariates, F future covariates, S
static covariates, Q quantiles, H hidden size, K = C + P + F. A *plane* is (B, T, features) or (B,
features, T), as the layout has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.models.dropout import Elementwise, add_dropout
from tuner.models.layers import (
    ChannelFirst,
    Layout,
    MiddleLinear,
    ReversibleInstanceNorm,
    TimeFirst,
    WindowStatistics,
    channel_first_plane_norm,
    feature_batch_norm,
    feature_layer_norm,
    feature_rms_norm,
    time_first_plane_norm,
)

# Parts of a network that need not wait for each other: in place, or side by side on a GPU.


Join = Callable[[], Tensor]
"""Waits for a branch, on the stream that asks, and gives its result."""


class Branches(Protocol):
    """Runs a function now or beside what follows."""

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        """Start `function(argument)`; its result is there once the returned function was called."""


class InPlace:
    """One after the other, on the current stream."""

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        result = function(argument)
        return lambda: result


class SideStreams:
    """Each branch on the next of `streams`.

    Autograd runs the backward pass of every operation on the stream of its forward pass.

    A tensor's memory belongs to the stream that allocated it, which may use it again as soon as the
    last reference is gone, whatever other streams still do with it. So every tensor that crosses is
    marked as used on the other side.
    """

    def __init__(self, streams: Sequence[torch.cuda.Stream]) -> None:
        self._streams = streams
        self._next = 0

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        side = self._streams[self._next % len(self._streams)]
        self._next += 1
        side.wait_stream(torch.cuda.current_stream())
        argument.record_stream(side)
        with torch.cuda.stream(side):
            result = function(argument)

        def join() -> Tensor:
            here = torch.cuda.current_stream()
            here.wait_stream(side)
            result.record_stream(here)
            return result

        return join


@dataclass(frozen=True, slots=True)
class Design:
    """What makes a variant: a layout, and a norm built from (features, horizon) for its planes."""

    layout: Layout
    norm: Callable[[int, int], nn.Module]


DESIGNS = {
    "original": Design(TimeFirst(), time_first_plane_norm),
    "rmsnorm": Design(ChannelFirst(), feature_rms_norm),
    "layernorm": Design(ChannelFirst(), feature_layer_norm),
    "simple": Design(ChannelFirst(), channel_first_plane_norm),
    "batchnorm": Design(ChannelFirst(), feature_batch_norm),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixingSizes:
    """Sizes shared by the mixing steps of one network."""

    horizon: int
    hidden_size: int
    feed_forward_size: int
    dropout: float


class TimeMixing(nn.Module):
    """Plane -> plane: Linear T -> T per feature, ReLU, dropout, residual, norm."""

    def __init__(self, design: Design, sizes: MixingSizes, n_features: int) -> None:
        super().__init__()
        self.elementwise = Elementwise()
        self.linear = design.layout.time_linear(sizes.horizon, sizes.horizon)
        self.dropout = sizes.dropout
        self.norm = design.norm(n_features, sizes.horizon)

    def forward(self, plane: Tensor) -> Tensor:
        return self.elementwise.join(
            plane, self.linear(plane), self.dropout, self.norm, relu=True, training=self.training
        )


class FeatureMixing(nn.Module):
    """Plane of n_in -> plane of H features: Linear, ReLU, dropout, Linear, dropout, residual, norm.

    Where the widths differ the residual goes through a Linear. It has the same input as the first
    Linear of the mixing, so both are one layer, `enter`: its first outputs are the mixing's, the
    last H the residual's.
    """

    def __init__(self, design: Design, sizes: MixingSizes, n_in: int) -> None:
        super().__init__()
        layout, n_out = design.layout, sizes.hidden_size
        self.elementwise = Elementwise()
        self.layout = layout
        self.widths = (
            [sizes.feed_forward_size] if n_in == n_out else [sizes.feed_forward_size, n_out]
        )
        self.enter = layout.feature_linear(n_in, sum(self.widths))
        self.contract = layout.feature_linear(sizes.feed_forward_size, n_out)
        self.dropout = sizes.dropout
        self.norm = design.norm(n_out, sizes.horizon)

    def forward(self, plane: Tensor, horizon: int | None = None) -> Tensor:
        """With `horizon`, `plane` is one hour that stands for all: what is the same runs once.

        That is the first layer in training, and all but the norm in evaluation.
        """
        entered = self.enter(plane)
        expanded, *projected = entered.split(self.widths, dim=self.layout.feature_axis)
        residual = projected[0] if projected else plane
        stretch = None
        if horizon is not None:
            stretch = functools.partial(self.layout.stretch, horizon=horizon)
        hidden = self.elementwise.relu_dropout(
            expanded,
            self.dropout,
            training=self.training,
            stretch=stretch if self.training else None,
        )
        contracted = self.contract(hidden)
        if stretch is not None and not self.training:
            added = add_dropout(residual, contracted, self.dropout, training=False)
            mixed: Tensor = self.norm(stretch(added))
            return mixed
        return self.elementwise.join(
            residual, contracted, self.dropout, self.norm, relu=False, training=self.training
        )


class MixerBlock(nn.Module):
    """Plane of n_in -> plane of H: static covariates join in, then time is mixed, then features."""

    def __init__(self, design: Design, sizes: MixingSizes, n_in: int, n_static: int) -> None:
        super().__init__()
        n_joined = n_in + (sizes.hidden_size if n_static else 0)
        self.feature_axis = design.layout.feature_axis
        self.static_mixing = FeatureMixing(design, sizes, n_static) if n_static else None
        self.time_mixing = TimeMixing(design, sizes, n_joined)
        self.feature_mixing = FeatureMixing(design, sizes, n_joined)

    def forward(self, planes: Sequence[Tensor]) -> Tensor:
        """Planes that together have the block's features; the last is `static_mixing`'s."""
        plane = torch.cat(list(planes), dim=self.feature_axis) if len(planes) > 1 else planes[0]
        mixed: Tensor = self.feature_mixing(self.time_mixing(plane))
        return mixed


class Joins(NamedTuple):
    """The mixed covariates, under way: of the future, and of the static ones for each block."""

    future: Join | None
    static: tuple[Join | None, ...]


class TSMixer(nn.Module):
    """The whole network: reversible norm, Linear L -> T, feature mixing, blocks, output head.

    Args:
        shapes: what the task asks for.
        design: layout and norm of the variant.
        hidden_size: H.
        dropout: probability of every dropout, in [0, 1).
        n_blocks: mixer blocks.
        feed_forward_size: width inside a feature mixing; None means H.
    """

    def __init__(
        self,
        shapes: ModelShapes,
        design: Design,
        *,
        hidden_size: int,
        dropout: float,
        n_blocks: int = 2,
        feed_forward_size: int | None = None,
    ) -> None:
        super().__init__()
        sizes = MixingSizes(
            horizon=shapes.horizon,
            hidden_size=hidden_size,
            feed_forward_size=hidden_size if feed_forward_size is None else feed_forward_size,
            dropout=dropout,
        )
        self.shapes = shapes
        self.layout = design.layout
        self.branches: Branches = InPlace()
        self.reversible_norm = ReversibleInstanceNorm(shapes.n_targets)
        self.time_projection = MiddleLinear(shapes.input_size, shapes.horizon)
        self.past_mixing = FeatureMixing(
            design, sizes, shapes.n_targets + shapes.n_past + shapes.n_future
        )
        self.future_mixing = (
            FeatureMixing(design, sizes, shapes.n_future) if shapes.n_future else None
        )
        first_width = 2 * hidden_size if shapes.n_future else hidden_size
        widths = [first_width] + [hidden_size] * (n_blocks - 1)
        self.blocks = nn.ModuleList(
            MixerBlock(design, sizes, width, shapes.n_static) for width in widths
        )
        self.head = design.layout.feature_linear(hidden_size, shapes.n_targets * shapes.n_quantiles)

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """Forecasts every target's quantiles at every hour of the horizon, in the units of `past`.

        Args:
            past: (B, L, C + P + F), targets first.
            future: (B, T, F), or None where F is 0.
            static: (B, S), or None where S is 0.

        Returns:
            (B, T, C, Q).
        """
        joins = self.begin_covariates(future, static, self.branches)
        plane, statistics = self.mix_past(past)
        planes = [plane] if joins.future is None else [plane, joins.future()]
        # Each static plane is waited for when its block asks, not before.
        return self.forecast(
            planes, (None if join is None else join() for join in joins.static), statistics
        )

    def begin_covariates(
        self, future: Tensor | None, static: Tensor | None, branches: Branches
    ) -> Joins:
        """Mix the future covariates, and the static ones of each block: none waits for the past."""
        layout, begin, horizon = self.layout, branches.begin, self.shapes.horizon
        mixed_future = None
        if self.future_mixing is not None and future is not None:
            mixed_future = begin(self.future_mixing, layout.enter(future))
        mixed_static: list[Join | None] = []
        for block in self.blocks:
            assert isinstance(block, MixerBlock), "the blocks are ours"
            if block.static_mixing is None or static is None:
                mixed_static.append(None)
                continue
            mix = functools.partial(block.static_mixing, horizon=horizon)
            mixed_static.append(begin(mix, layout.one_hour(static)))
        return Joins(mixed_future, tuple(mixed_static))

    def mix_past(self, past: Tensor) -> tuple[Tensor, WindowStatistics]:
        """The window, (B, L, C + P + F), as a plane of H at the horizon's hours, and its level."""
        n_targets = self.shapes.n_targets
        targets, statistics = self.reversible_norm(past[..., :n_targets])
        history = torch.cat([targets, past[..., n_targets:]], dim=-1)
        projected = self.reversible_norm.after_projection(
            self.time_projection(history), self.time_projection
        )
        plane: Tensor = self.past_mixing(self.layout.enter(projected))
        return plane, statistics

    def forecast(
        self,
        planes: Sequence[Tensor],
        static: Iterable[Tensor | None],
        statistics: WindowStatistics,
    ) -> Tensor:
        """The blocks and the head.

        Args:
            planes: of H each: the mixed past and, where there are any, the mixed future covariates.
            static: for each block the mixed static covariates, a plane of H, or None where there
                are none.
            statistics: what the past had.

        Returns:
            (B, T, C, Q).
        """
        for block, mixed in zip(self.blocks, static, strict=True):
            planes = [block(planes if mixed is None else [*planes, mixed])]
        forecast = self.layout.leave(self.head(planes[0]))  # (B, T, C * Q)
        forecast = forecast.reshape(
            -1, self.shapes.horizon, self.shapes.n_targets, self.shapes.n_quantiles
        )
        restored: Tensor = self.reversible_norm.inverse(forecast, statistics)
        return restored
