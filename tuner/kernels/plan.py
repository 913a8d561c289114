"""Sizes of a fused network, where what its kernels keep lies in memory, and its parameters.

Every sample has one *record* in the workspace: a row of float32 numbers that holds its planes,
first those that the forward pass leaves for the backward pass, then the gradients. Fields are
multiples of 16 numbers wide, so that every row of a plane starts on a 64-byte boundary. A second
record, of bytes, holds the masks of dropout.

All of these are named tuples of numbers: they are compiled into the kernels as constants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tuner.models.layers import FeatureRMSNorm, TimeFirst
from tuner.models.tsmixer import FeatureMixing, MixerBlock, TimeMixing, TSMixer

# Sizes of a fused network, and where what its kernels keep lies in memory.


ALIGNMENT = 16
"""Numbers; 64 bytes."""


class Sizes(NamedTuple):
    """What every kernel is compiled for; `_tile` is the power of two that holds what is before."""

    length: int
    """Input hours."""
    horizon: int
    horizon_tile: int
    hidden: int
    hidden_tile: int
    targets: int
    columns: int
    """Of a window: targets, past covariates, past of the future covariates."""
    columns_tile: int
    outputs: int
    """At each hour: targets times levels."""
    levels: int
    """Quantiles."""
    future: int
    static: int
    static_tile: int
    norm: str
    """`plane`, `plane_channel_first`, `layer` or `rms`."""
    products: str
    """`ieee`, `tf32x3` or `tf32`."""
    dropout: bool
    chunk: int
    """Along the axis that a product sums over."""
    record: int
    """Numbers of a sample's record."""
    mask_record: int
    """Bytes of a sample's masks."""


class MixingFields(NamedTuple):
    """Of one feature mixing: offsets in a record; the masks' are in the record of bytes."""

    hidden: int  # (horizon, hidden): after the first product, ReLU and dropout
    normed: int  # (horizon, hidden): before the norm's weight and bias
    inverse: int  # (horizon,): 1 / deviation
    grad_contracted: int  # (horizon, hidden): of what the second product gave
    grad_entered: int  # (horizon, first product's outputs); summed over hours in a static mixing
    mask_hidden: int  # (horizon, hidden)
    mask_mixed: int  # (horizon, hidden)


class EntryFields(NamedTuple):
    """Of the projection and the two mixings after it."""

    history: int  # (length, columns): the normalised window
    history_row: int
    projected: int  # (horizon, columns)
    affine: int  # (horizon, columns): after the reversible norm's affine step
    row_sums: int  # (horizon,): of the projection's weight
    future: int  # (horizon, future)
    statistics: int  # (2, targets): mean and deviation
    past_mixing: MixingFields
    future_mixing: MixingFields | None
    plane: int  # (horizon, width of the first block): past features, then future ones
    plane_row: int
    grad_plane: int
    grad_weight: int  # (horizon, length): the projection's
    grad_bias: int  # (horizon,)
    grad_norm: int  # (2, targets): the reversible norm's weight and bias


class BlockFields(NamedTuple):
    """Of one mixer block: `plane` it mixes, `mixed` is after time mixing, `out` gets its result.

    The forward pass clears in the mask of the time mixing what its ReLU cut: the backward pass
    needs nothing else.
    """

    width: int
    """Features of the plane."""
    static: int  # (static,)
    static_mixing: MixingFields | None
    plane: int  # (horizon, width)
    normed: int  # (horizon, width)
    inverse: int  # (horizon,)
    mask: int  # (horizon, width)
    mixed: int  # (horizon, width)
    feature_mixing: MixingFields
    projects: bool
    """Whether the residual of the feature mixing goes through a layer."""
    out: int  # (horizon, hidden)
    out_row: int
    grad_plane: int  # (horizon, width)
    grad_mixed: int  # (horizon, width)
    grad_out: int  # (horizon, hidden)
    grad_weight: int  # (horizon, horizon): the time mixing's
    grad_bias: int  # (horizon,)


class HeadFields(NamedTuple):
    """Of the output layer and the way back to the window's own units."""

    plane: int  # (horizon, hidden)
    forecast: int  # (horizon, outputs), normalised
    forecast_row: int
    statistics: int  # (2, targets), as in `EntryFields`
    grad_plane: int  # (horizon, hidden)
    grad_forecast: int  # (horizon, outputs)
    grad_norm: int  # (2, targets), as in `EntryFields`


class Plan(NamedTuple):
    """A network's memory, as its kernels see it."""

    sizes: Sizes
    entry: EntryFields
    blocks: tuple[BlockFields, ...]
    head: HeadFields
    masks: tuple[tuple[int, int], ...]
    """Of each dropout, in the plain network's order: offset, and features that a mask covers."""


def padded(n: int) -> int:
    """The next multiple of the alignment."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n and 16, the least that a product can take."""
    return max(ALIGNMENT, 1 << (n - 1).bit_length())


# Lays out the memory of a fused network: hands out the offsets of a `Plan`, field after field.


CHUNK = 32
"""Of the axis that a product sums over, at once."""


def make_plan(model: TSMixer, products: str, *, dropout: bool) -> Plan:
    """Lay out the memory of a network that `why_not` has nothing against."""
    return _Planner(model).plan(products, dropout=dropout)


def norm_kind(model: TSMixer) -> str:
    """Which of the kernels' norms a network has."""
    norm = model.past_mixing.norm
    if isinstance(norm, FeatureRMSNorm):
        return "rms"
    assert isinstance(norm, nn.LayerNorm), "why_not refuses others"
    if len(norm.normalized_shape) == 1:
        return "layer"
    return "plane" if isinstance(model.layout, TimeFirst) else "plane_channel_first"


class _Planner:
    """Hands out offsets, one field after the other."""

    def __init__(self, model: TSMixer) -> None:
        self._model = model
        self._shapes = model.shapes
        self._hidden: int = model.past_mixing.widths[0]
        self._columns = self._shapes.n_targets + self._shapes.n_past + self._shapes.n_future
        self._outputs = self._shapes.n_targets * self._shapes.n_quantiles
        self._used = 0
        self._mask_used = 0
        self._masks: list[tuple[int, int]] = []

    def plan(self, products: str, *, dropout: bool) -> Plan:
        shapes, horizon = self._shapes, self._shapes.horizon
        widths = self._widths()
        rows = [*widths, self._hidden]
        planes = [self._field(horizon * row) for row in rows]
        grad_planes = [self._field(horizon * row) for row in rows]
        statistics, grad_norm = self._field(2 * shapes.n_targets), self._field(2 * shapes.n_targets)
        # Masks are handed out in the order in which the plain network draws them.
        future_mixing = self._mixing() if shapes.n_future else None
        static = [self._mixing(static=True) if shapes.n_static else None for _ in widths]
        past_mixing = self._mixing()
        blocks = tuple(
            self._block(static[n], rows[n : n + 2], planes[n : n + 2], grad_planes[n : n + 2])
            for n in range(len(widths))
        )
        column_row = padded(self._columns)
        entry = EntryFields(
            history=self._field(shapes.input_size * column_row),
            history_row=column_row,
            projected=self._field(horizon * column_row),
            affine=self._field(horizon * column_row),
            row_sums=self._field(horizon),
            future=self._field(horizon * padded(shapes.n_future)),
            statistics=statistics,
            past_mixing=past_mixing,
            future_mixing=future_mixing,
            plane=planes[0],
            plane_row=widths[0],
            grad_plane=grad_planes[0],
            grad_weight=self._field(horizon * shapes.input_size),
            grad_bias=self._field(horizon),
            grad_norm=grad_norm,
        )
        head = self._head(planes[-1], grad_planes[-1], statistics, grad_norm)
        sizes = self._sizes(products, dropout=dropout)
        return Plan(sizes, entry, blocks, head, tuple(self._masks))

    def _widths(self) -> list[int]:
        """Features of the plane that each block mixes."""
        n_blocks, n_static = len(self._model.blocks), 1 if self._shapes.n_static else 0
        first = 2 if self._shapes.n_future else 1
        return [self._hidden * ((first if n == 0 else 1) + n_static) for n in range(n_blocks)]

    def _head(self, plane: int, grad_plane: int, statistics: int, grad_norm: int) -> HeadFields:
        row = padded(self._outputs)
        return HeadFields(
            plane=plane,
            forecast=self._field(self._shapes.horizon * row),
            forecast_row=row,
            statistics=statistics,
            grad_plane=grad_plane,
            grad_forecast=self._field(self._shapes.horizon * row),
            grad_norm=grad_norm,
        )

    def _sizes(self, products: str, *, dropout: bool) -> Sizes:
        """Once all fields are handed out."""
        shapes = self._shapes
        return Sizes(
            length=shapes.input_size,
            horizon=shapes.horizon,
            horizon_tile=power_of_two(shapes.horizon),
            hidden=self._hidden,
            hidden_tile=power_of_two(self._hidden),
            targets=shapes.n_targets,
            columns=self._columns,
            columns_tile=power_of_two(self._columns),
            outputs=self._outputs,
            levels=shapes.n_quantiles,
            future=shapes.n_future,
            static=shapes.n_static,
            static_tile=power_of_two(max(1, shapes.n_static)),
            norm=norm_kind(self._model),
            products=products,
            dropout=dropout,
            chunk=min(CHUNK, power_of_two(self._hidden)),
            record=self._used,
            mask_record=self._mask_used,
        )

    def _field(self, n: int) -> int:
        offset = self._used
        self._used += padded(n)
        return offset

    def _mask(self, n_features: int) -> int:
        offset = self._mask_used
        self._mask_used += padded(self._shapes.horizon * n_features)
        self._masks.append((offset, n_features))
        return offset

    def _mixing(self, *, static: bool = False, projects: bool = True) -> MixingFields:
        plane = self._shapes.horizon * self._hidden
        entered = self._hidden * (2 if projects else 1)
        return MixingFields(
            hidden=self._field(plane),
            normed=self._field(plane),
            inverse=self._field(self._shapes.horizon),
            grad_contracted=self._field(plane),
            grad_entered=self._field(entered if static else self._shapes.horizon * entered),
            mask_hidden=self._mask(self._hidden),
            mask_mixed=self._mask(self._hidden),
        )

    def _block(
        self,
        static: MixingFields | None,
        rows: list[int],
        planes: list[int],
        grad_planes: list[int],
    ) -> BlockFields:
        width, horizon = rows[0], self._shapes.horizon
        projects = width != self._hidden
        mask = self._mask(width)
        return BlockFields(
            width=width,
            static=self._field(self._shapes.n_static),
            static_mixing=static,
            plane=planes[0],
            normed=self._field(horizon * width),
            inverse=self._field(horizon),
            mask=mask,
            mixed=self._field(horizon * width),
            feature_mixing=self._mixing(projects=projects),
            projects=projects,
            out=planes[1],
            out_row=rows[1],
            grad_plane=grad_planes[0],
            grad_mixed=self._field(horizon * width),
            grad_out=grad_planes[1],
            grad_weight=self._field(horizon * horizon),
            grad_bias=self._field(horizon),
        )


# The parameters as the kernels take them: named tuples of the model's own tensors.


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
