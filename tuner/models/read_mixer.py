"""Mixers of another reading: the skeleton of `tsmixer`, each layer as a `Reading` says.

Nothing here serves a network whose reading is today's. Planes are as in `tsmixer`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional, init

from tuner.config import ModelShapes
from tuner.errors import UsageError
from tuner.models.dropout import dropout
from tuner.models.layers import EPS, FeatureRMSNorm, TimeFirst
from tuner.models.readings import Reading
from tuner.models.tsmixer import Design, FeatureMixing, MixerBlock, MixingSizes, TimeMixing, TSMixer

_INITIALISE: dict[str, Callable[[Tensor], Any]] = {
    "default": lambda _weight: None,
    "he_normal": lambda weight: init.kaiming_normal_(weight, nonlinearity="relu"),
    "he_normal_fan_out": lambda weight: init.kaiming_normal_(
        weight, mode="fan_out", nonlinearity="relu"
    ),
    "he_uniform": lambda weight: init.kaiming_uniform_(weight, nonlinearity="relu"),
    "lecun_normal": lambda weight: init.kaiming_normal_(weight, nonlinearity="linear"),
    "xavier_uniform": init.xavier_uniform_,
    "xavier_normal": init.xavier_normal_,
    "orthogonal": init.orthogonal_,
    "normal_0.02": lambda weight: init.normal_(weight, std=0.02),
}


def build_read(shapes: ModelShapes, design: Design, reading: Reading, **sizes: Any) -> TSMixer:
    """A mixer of this reading, from torch's global random state.

    Where only the initial weights differ it is a `TSMixer`, which every engine serves.

    Args:
        shapes: what the task asks for.
        design: layout and norm of the variant.
        reading: what else.
        sizes: those that `TSMixer` takes.

    Raises:
        UsageError: a choice that this variant cannot have.
    """
    if reading.of_weights_only:
        model = TSMixer(shapes, design, **sizes)
    else:
        model = ReadTSMixer(shapes, design, reading, **sizes)
    _initialise(model, reading)
    return model


@torch.no_grad()
def _initialise(model: TSMixer, reading: Reading) -> None:
    for layer, widths in _layers(model):
        # A layer that stands for two is two for an initialisation.
        for weight in torch.split(layer.weight, widths):
            _INITIALISE[reading.initialisation](weight)
        layer.weight.mul_(reading.gain)
        if reading.biases == "zero" and layer.bias is not None:
            layer.bias.zero_()
    for module in model.modules():
        if isinstance(module, TimeMixing):
            module.linear.weight.mul_(reading.branch_gain)  # type: ignore[operator]
        if isinstance(module, FeatureMixing):
            module.contract.weight.mul_(reading.branch_gain)  # type: ignore[operator]


def _layers(model: TSMixer) -> Iterator[tuple[nn.Linear | nn.Conv1d, list[int]]]:
    """Each layer, with the rows of its weight that are layers of their own."""
    entering = {
        each.enter: each.widths for each in model.modules() if isinstance(each, FeatureMixing)
    }
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            yield module, entering.get(module, [len(module.weight)])


class AxesNorm(nn.Module):
    """A plane divided by its root mean square over these axes; `centred`: its mean taken off first.

    A weight of `shape` follows, or none; `biased`: then a bias.
    """

    def __init__(
        self, axes: tuple[int, ...], shape: tuple[int, ...] | None, *, centred: bool, biased: bool
    ) -> None:
        super().__init__()
        self.axes, self.centred = axes, centred
        self.weight = None if shape is None else nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if shape is not None and biased else None

    def forward(self, plane: Tensor) -> Tensor:
        if self.centred:
            plane = plane - plane.mean(dim=self.axes, keepdim=True)
        plane = plane * torch.rsqrt(plane.square().mean(dim=self.axes, keepdim=True) + EPS)
        if self.weight is not None:
            plane = plane * self.weight
        return plane if self.bias is None else plane + self.bias


def _norm(design: Design, reading: Reading, n_features: int, horizon: int, place: str) -> nn.Module:
    """The norm at this place, `before`, `after_time` or `after_features`; or nothing."""
    chosen = reading.norm_place
    there = chosen == place or (chosen == "after" and place != "before")
    if reading.norm == "none" or not there:
        return nn.Identity()
    usual = design.norm(n_features, horizon)
    if {reading.norm, reading.norm_axes, reading.norm_weights} == {"variant"}:
        return usual
    if not isinstance(usual, nn.LayerNorm | FeatureRMSNorm):
        raise UsageError("norm_axes and norm_weights: BatchNorm has its own; leave them out")
    centred = not isinstance(usual, FeatureRMSNorm)
    if reading.norm != "variant":
        centred = reading.norm == "layer"
    axes = reading.norm_axes
    if axes == "variant":
        plane = isinstance(usual, nn.LayerNorm) and len(usual.normalized_shape) > 1
        axes = "plane" if plane else "features"
    feature = design.layout.feature_axis
    over = {"features": (feature,), "time": (3 - feature,), "plane": (1, 2)}[axes]
    weights = "feature" if reading.norm_weights == "feature" else axes
    sizes = {
        feature: 1 if weights == "time" else n_features,
        3 - feature: horizon if weights in ("time", "plane") else 1,
    }
    shape = None if reading.norm_weights == "none" else (sizes[1], sizes[2])
    return AxesNorm(
        over, shape, centred=centred, biased=centred and reading.norm_weights != "no_bias"
    )


def _drop(
    plane: Tensor, p: float, reading: Reading, feature_axis: int, *, training: bool
) -> Tensor:
    if reading.dropout_unit == "element" or not training:
        return dropout(plane, p, training=training)
    whole = torch.ones_like(plane.narrow(3 - feature_axis, 0, 1))
    return plane * functional.dropout(whole, p)


class ReadTimeMixing(TimeMixing):
    """`TimeMixing`, as the reading says."""

    def __init__(
        self, design: Design, sizes: MixingSizes, n_features: int, reading: Reading
    ) -> None:
        super().__init__(design, sizes, n_features)
        self.reading, self.feature_axis = reading, design.layout.feature_axis
        self.before = _norm(design, reading, n_features, sizes.horizon, "before")
        self.norm = _norm(design, reading, n_features, sizes.horizon, "after_time")

    def forward(self, plane: Tensor) -> Tensor:
        reading = self.reading
        branch = self.linear(self.before(plane))
        if reading.time_relu:
            branch = torch.relu(branch)
        p = self.dropout if reading.time_dropout else 0.0
        branch = _drop(branch, p, reading, self.feature_axis, training=self.training)
        mixed: Tensor = self.norm(branch if reading.residual == "none" else plane + branch)
        return mixed


class ReadFeatureMixing(FeatureMixing):
    """`FeatureMixing`, as the reading says: the residual's layer is one of its own."""

    def __init__(self, design: Design, sizes: MixingSizes, n_in: int, reading: Reading) -> None:
        super().__init__(design, sizes, n_in)
        n_hidden, n_out = sizes.feed_forward_size, sizes.hidden_size
        self.reading = reading
        self.widths = [n_hidden]
        self.enter = _feature_layer(design, reading, n_in, n_hidden)
        self.contract = _feature_layer(design, reading, n_hidden, n_out)
        self.projection = (
            design.layout.feature_linear(n_in, n_out)
            if n_in != n_out and reading.residual == "projected"
            else None
        )
        self.has_residual = self.projection is not None or (
            n_in == n_out and reading.residual != "none"
        )
        self.before = _norm(design, reading, n_in, sizes.horizon, "before")
        self.norm = _norm(design, reading, n_out, sizes.horizon, "after_features")

    def forward(self, plane: Tensor, horizon: int | None = None) -> Tensor:
        """As `FeatureMixing`, but that every hour is computed."""
        reading, axis = self.reading, self.layout.feature_axis
        if horizon is not None:
            plane = self.layout.stretch(plane, horizon)
        hidden = self.enter(self.before(plane))
        if reading.feature_relu:
            hidden = torch.relu(hidden)
        p = self.dropout if reading.hidden_dropout else 0.0
        hidden = _drop(hidden, p, reading, axis, training=self.training)
        p = self.dropout if reading.output_dropout else 0.0
        branch = _drop(self.contract(hidden), p, reading, axis, training=self.training)
        if self.has_residual:
            branch = branch + (plane if self.projection is None else self.projection(plane))
        mixed: Tensor = self.norm(branch)
        return mixed


def _feature_layer(design: Design, reading: Reading, n_in: int, n_out: int) -> nn.Module:
    if reading.kernel_size == 1 and reading.groups == 1:
        return design.layout.feature_linear(n_in, n_out)
    if isinstance(design.layout, TimeFirst):
        raise UsageError("kernel_size and groups: this variant has no convolutions; leave them 1")
    fits = n_in % reading.groups == 0 and n_out % reading.groups == 0
    size = reading.kernel_size
    groups = reading.groups if fits else 1
    return nn.Conv1d(n_in, n_out, size, padding=size // 2, groups=groups)


class ReshapedHead(nn.Module):
    """A channel-first head whose plane, once it is transposed, is as if it had been reshaped."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, plane: Tensor) -> Tensor:
        out: Tensor = self.head(plane)
        first, second = out.shape[1:]
        return out.reshape(-1, second, first).transpose(1, 2)


class ReadTSMixer(TSMixer):
    """A `TSMixer` whose mixings are those of a reading; built as `build_read` is."""

    def __init__(self, shapes: ModelShapes, design: Design, reading: Reading, **sizes: Any) -> None:
        if reading.covariates == "no_static":
            shapes = dataclasses.replace(shapes, n_static=0)
        if reading.covariates == "no_calendar":
            shapes = dataclasses.replace(shapes, n_future=0)
        super().__init__(shapes, design, **sizes)
        self.reading = reading
        hidden_size = sizes["hidden_size"]
        mixing = MixingSizes(
            horizon=shapes.horizon,
            hidden_size=hidden_size,
            feed_forward_size=self.past_mixing.widths[0],
            dropout=sizes["dropout"],
        )

        def features(n_in: int) -> ReadFeatureMixing:
            return ReadFeatureMixing(design, mixing, n_in, reading)

        self.past_mixing = features(shapes.n_targets + shapes.n_past + shapes.n_future)
        self.future_mixing = features(shapes.n_future) if shapes.n_future else None
        n_in = 2 * hidden_size if shapes.n_future else hidden_size
        for block in self.blocks:
            assert isinstance(block, MixerBlock), "built so"
            n_joined = n_in + (hidden_size if shapes.n_static else 0)
            block.static_mixing = features(shapes.n_static) if shapes.n_static else None
            block.time_mixing = ReadTimeMixing(design, mixing, n_joined, reading)
            block.feature_mixing = features(n_joined)
            n_in = hidden_size
        if reading.biases == "none":
            for layer, _ in list(_layers(self)):
                if layer is not self.time_projection:  # the affine step reads that one
                    _fix(layer, "bias", 0.0)
        if not reading.reversible_affine:
            _fix(self.reversible_norm, "weight", 1.0)
            _fix(self.reversible_norm, "bias", 0.0)
        if reading.head_order == "reshaped" and not isinstance(design.layout, TimeFirst):
            self.head = ReshapedHead(self.head)

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """As `TSMixer`, without the covariates that the reading leaves out."""
        shapes = self.shapes
        n_past = shapes.n_targets + shapes.n_past + shapes.n_future
        return super().forward(
            past[..., :n_past],
            future if shapes.n_future else None,
            static if shapes.n_static else None,
        )


def _fix(module: nn.Module, name: str, value: float) -> None:
    """A parameter that is now a constant: nothing trains or counts it."""
    shape = getattr(module, name).shape
    delattr(module, name)
    module.register_buffer(name, torch.full(shape, value), persistent=False)
