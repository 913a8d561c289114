"""The parameters as the kernels take them: named tuples of the model's own tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from tuner.models.tsmixer import FeatureMixing, MixerBlock, TimeMixing, TSMixer


class MixingWeights(NamedTuple):
    """A feature mixing: both layers and the norm, whose weight stands for a bias it lacks.

    Nothing reads that one.
    """

    enter: Tensor  # (hidden, or twice that where it projects; inputs)
    enter_bias: Tensor  # (hidden, or twice that)
    contract: Tensor  # (hidden, hidden)
    contract_bias: Tensor  # (hidden,)
    weight: Tensor  # (hidden,), or a plane's: (horizon, hidden) or (hidden, horizon)
    bias: Tensor  # as `weight`


class TimeWeights(NamedTuple):
    """A time mixing: its layer and its norm."""

    linear: Tensor  # (horizon, horizon)
    linear_bias: Tensor  # (horizon,)
    weight: Tensor  # (width,), or a plane's: (horizon, width) or (width, horizon)
    bias: Tensor  # as `weight`


class EntryWeights(NamedTuple):
    """The reversible norm and the projection of hours."""

    norm_weight: Tensor  # (targets,)
    norm_bias: Tensor  # (targets,)
    projection: Tensor  # (horizon, length)
    projection_bias: Tensor  # (horizon,)


class HeadWeights(NamedTuple):
    """The output layer and the reversible norm."""

    norm_weight: Tensor  # (targets,)
    norm_bias: Tensor  # (targets,)
    linear: Tensor  # (outputs, hidden)
    linear_bias: Tensor  # (outputs,)


class BlockWeights(NamedTuple):
    """A mixer block."""

    static: MixingWeights | None
    time: TimeWeights
    features: MixingWeights


class Weights(NamedTuple):
    """All of a network."""

    entry: EntryWeights
    past: MixingWeights
    future: MixingWeights | None
    blocks: tuple[BlockWeights, ...]
    head: HeadWeights


def weights_of(model: TSMixer) -> Weights:
    """The very tensors of a model."""
    norm, projection = model.reversible_norm, model.time_projection
    entry = EntryWeights(norm.weight, norm.bias, projection.weight, projection.bias)
    head: Any = model.head
    return Weights(
        entry=entry,
        past=_mixing(model.past_mixing),
        future=None if model.future_mixing is None else _mixing(model.future_mixing),
        blocks=tuple(_block(block) for block in model.blocks),
        head=HeadWeights(norm.weight, norm.bias, head.weight, head.bias),
    )


def _block(block: Any) -> BlockWeights:
    assert isinstance(block, MixerBlock), "the blocks are ours"
    static = None if block.static_mixing is None else _mixing(block.static_mixing)
    return BlockWeights(static, _time(block.time_mixing), _mixing(block.feature_mixing))


def _mixing(mixing: FeatureMixing) -> MixingWeights:
    enter: Any = mixing.enter
    contract: Any = mixing.contract
    return MixingWeights(
        enter.weight, enter.bias, contract.weight, contract.bias, *_affine(mixing.norm)
    )


def _time(time: TimeMixing) -> TimeWeights:
    linear: Any = time.linear
    return TimeWeights(linear.weight, linear.bias, *_affine(time.norm))


def _affine(norm: Any) -> tuple[Tensor, Tensor]:
    return norm.weight, getattr(norm, "bias", norm.weight)
