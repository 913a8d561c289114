"""The parameters as the kernels take them: named tuples of the model's own tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tuner.models.fused.memory_plan import BlockFields, MixingFields, Plan, padded
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


# Where each parameter lies in one flat buffer, for the network's gradients and the optimiser.


ALIGNED = 64
"""Every parameter begins at a multiple of so many numbers: 256 bytes, as torch's do."""


class Layout(NamedTuple):
    """Parameters one after the other, with gaps between them.

    Attributes:
        starts: of each parameter.
        size: of the whole, a multiple of `ALIGNED`.
    """

    starts: list[int]
    size: int

    def views(self, buffer: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        """Of a buffer of this size, in the parameters' shapes."""
        places = zip(self.starts, parameters, strict=True)
        return [buffer[start : start + p.numel()].view(p.shape) for start, p in places]


def layout_of(parameters: Sequence[nn.Parameter]) -> Layout:
    """The layout of these parameters, in their order."""
    ends = [0]
    for parameter in parameters:
        ends.append(ends[-1] + math.ceil(parameter.numel() / ALIGNED) * ALIGNED)
    return Layout(ends[:-1], ends[-1])


def whole_of(views: Sequence[Tensor], layout: Layout) -> Tensor | None:
    """The buffer that these are views of, as `Layout.views` has them; None if they are not."""
    first = views[0]
    storage = first.untyped_storage()
    begin = first.storage_offset() - layout.starts[0]
    lie_so = all(
        view.dtype == first.dtype
        and view.is_contiguous()
        and view.untyped_storage().data_ptr() == storage.data_ptr()
        and view.storage_offset() == begin + start
        for view, start in zip(views, layout.starts, strict=True)
    )
    if not lie_so or begin < 0 or storage.nbytes() < (begin + layout.size) * first.element_size():
        return None
    return first.detach().as_strided((layout.size,), (1,), begin)


# What the parameters' gradients are summed from: the rows that two kernels read.


TILE = 64
"""Outputs and inputs of a weight that one program sums."""

COLUMNS = 512
"""Of a plane that one program sums, one row of each sample."""

FEATURES = 64
"""The same where all rows of a sample are summed: there are as few columns as features then."""

NONE = -1


def columns_of(n_rows: int) -> int:
    """How many columns a program sums where a sample has so many rows."""
    return COLUMNS if n_rows == 1 else FEATURES


class Rows(NamedTuple):
    """A plane in a record: its offset, how far its rows are apart, and their number."""

    offset: int
    row: int
    n_rows: int


class Tables(NamedTuple):
    """The rows of both kernels; for the sums of columns by how many rows of a sample are summed."""

    products: list[list[int]]
    columns: dict[int, list[list[int]]]


class DeviceTables(NamedTuple):
    """The same on a device, the flat gradient's layout, and how much of each `ALIGNED` is used."""

    products: Tensor
    columns: dict[int, Tensor]
    layout: Layout
    used: Tensor


def tables_on(device: torch.device, model: TSMixer, plan: Plan) -> DeviceTables:
    """The tables of a network, where its kernels read them."""
    products, columns = make_tables(model, plan)
    parameters = list(model.parameters())
    used: list[int] = []
    for parameter in parameters:
        n = parameter.numel()
        used += [min(ALIGNED, n - first) for first in range(0, n, ALIGNED)]
    as_tensor = functools.partial(torch.tensor, dtype=torch.int64, device=device)
    column_tables = {n_rows: as_tensor(rows) for n_rows, rows in columns.items()}
    return DeviceTables(
        as_tensor(products), column_tables, layout_of(parameters), as_tensor(used).to(torch.int32)
    )


def make_tables(model: TSMixer, plan: Plan) -> Tables:
    """What gives every parameter its gradient, in a flat one laid out by `layout_of`."""
    return _Collector(model, plan).collect()


class _Collector:
    def __init__(self, model: TSMixer, plan: Plan) -> None:
        self._model, self._plan = model, plan
        parameters = list(model.parameters())
        self._offsets = dict(zip(parameters, layout_of(parameters).starts, strict=True))
        self._tables = Tables([], {})

    def collect(self) -> Tables:
        model, (sizes, entry, blocks, head, _) = self._model, self._plan
        t, hidden = sizes.horizon, sizes.hidden
        past_rows = Rows(entry.affine, entry.history_row, t)
        self._mixing(
            model.past_mixing,
            entry.past_mixing,
            past_rows,
            Rows(entry.grad_plane, entry.plane_row, t),
        )
        if model.future_mixing is not None and entry.future_mixing is not None:
            future_rows = Rows(entry.future, padded(sizes.future), t)
            grad_out = Rows(entry.grad_plane + hidden, entry.plane_row, t)
            self._mixing(model.future_mixing, entry.future_mixing, future_rows, grad_out)
        for block, fields in zip(model.blocks, blocks, strict=True):
            assert isinstance(block, MixerBlock), "the blocks are ours"
            self._block(block, fields)
        forecast = Rows(head.grad_forecast, head.forecast_row, t)
        self._weight(model.head, forecast, Rows(head.plane, hidden, t))
        self._shares(_parameter(model.time_projection, "weight"), entry.grad_weight)
        self._shares(_parameter(model.time_projection, "bias"), entry.grad_bias)
        self._shares(model.reversible_norm.weight, entry.grad_norm, model.reversible_norm.bias)
        return self._tables

    def _block(self, block: MixerBlock, fields: BlockFields) -> None:
        t, hidden = self._plan.sizes.horizon, self._plan.sizes.hidden
        if block.static_mixing is not None and fields.static_mixing is not None:
            joined = Rows(fields.grad_plane + fields.width - hidden, fields.width, t)
            static_rows = Rows(fields.static, padded(self._plan.sizes.static), 1)
            self._mixing(block.static_mixing, fields.static_mixing, static_rows, joined)
        time = block.time_mixing
        self._shares(_parameter(time.linear, "weight"), fields.grad_weight)
        self._shares(_parameter(time.linear, "bias"), fields.grad_bias)
        grad_mixed = Rows(fields.grad_mixed, fields.width, t)
        self._norm(time.norm, grad_mixed, Rows(fields.normed, fields.width, t), fields.width)
        mixed, grad_out = (
            Rows(fields.mixed, fields.width, t),
            Rows(fields.grad_out, fields.out_row, t),
        )
        self._mixing(block.feature_mixing, fields.feature_mixing, mixed, grad_out)

    def _mixing(self, mixing: FeatureMixing, fields: MixingFields, x: Rows, grad_out: Rows) -> None:
        t, hidden = self._plan.sizes.horizon, self._plan.sizes.hidden
        self._weight(mixing.enter, Rows(fields.grad_entered, sum(mixing.widths), x.n_rows), x)
        self._weight(
            mixing.contract, Rows(fields.grad_contracted, hidden, t), Rows(fields.hidden, hidden, t)
        )
        self._norm(mixing.norm, grad_out, Rows(fields.normed, hidden, t), hidden)

    def _weight(self, layer: nn.Module, gradient: Rows, x: Rows) -> None:
        weight, bias = _parameter(layer, "weight"), _parameter(layer, "bias")
        n_out, n_in = weight.shape[:2]
        common = [
            *gradient[:2],
            *x[:2],
            gradient.n_rows,
            n_out,
            n_in,
            self._offsets[weight],
            self._offsets[bias],
        ]
        tiles = [(o, i) for o in range(-(-n_out // TILE)) for i in range(-(-n_in // TILE))]
        self._tables.products.extend([*common, o, i] for o, i in tiles)

    def _norm(self, norm: nn.Module, gradient: Rows, normed: Rows, width: int) -> None:
        horizon, kind = self._plan.sizes.horizon, self._plan.sizes.norm
        weight = self._offsets[_parameter(norm, "weight")]
        bias = NONE if kind == "rms" else self._offsets[_parameter(norm, "bias")]
        whole = kind in ("plane", "plane_channel_first")
        n_rows, n_columns = (1, horizon * width) if whole else (horizon, width)
        apart = (1, horizon) if kind == "plane_channel_first" else (width, 1)
        self._columns(
            n_rows, n_columns, [*gradient[:2], *normed[:2], n_columns, width, weight, bias, *apart]
        )

    def _shares(
        self, parameter: nn.Parameter, offset: int, after: nn.Parameter | None = None
    ) -> None:
        """Of a parameter, from a multiple of 16 on, and of one as large after it: a second hour."""
        n, start = parameter.numel(), self._offsets[parameter]
        apart = 0 if after is None else self._offsets[after] - start
        n_columns = n if after is None else 2 * n
        self._columns(1, n_columns, [offset, n, NONE, n, n_columns, n, NONE, start, apart, 1])

    def _columns(self, n_rows: int, n_columns: int, common: list[int]) -> None:
        rows = self._tables.columns.setdefault(n_rows, [])
        rows.extend([*common, first] for first in range(0, n_columns, columns_of(n_rows)))


def _parameter(module: nn.Module, name: str) -> nn.Parameter:
    parameter = getattr(module, name)
    assert isinstance(parameter, nn.Parameter), f"{type(module).__name__} has a {name}"
    return parameter
