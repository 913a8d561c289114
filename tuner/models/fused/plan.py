"""Sizes of a fused network, and where what its kernels keep lies in memory.

Every sample has one *record* in the workspace: a row of float32 numbers that holds its planes, first those that the
forward pass leaves for the backward pass, then the gradients. Fields are multiples of 16 numbers wide, so that every
row of a plane starts on a 64-byte boundary. A second record, of bytes, holds the masks of dropout.

All of these are named tuples of numbers: they are compiled into the kernels as constants.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from tuner.models.layers import FeatureRMSNorm, TimeFirst
from tuner.models.tsmixer import TSMixer

ALIGNMENT = 16
"""Numbers; 64 bytes."""

CHUNK = 32
"""Of the axis that a product sums over, at once."""


class Sizes(NamedTuple):
    """What every kernel is compiled for. A name with `_tile` is the power of two that holds the size before it."""

    length: int
    horizon: int
    horizon_tile: int
    hidden: int
    hidden_tile: int
    targets: int
    columns: int
    columns_tile: int
    outputs: int
    levels: int
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
    mask_record: int


class MixingFields(NamedTuple):
    """Of one feature mixing: offsets in a record, but for the masks', which are in the record of bytes."""

    hidden: int
    normed: int
    inverse: int
    of_contracted: int
    of_entered: int
    mask_hidden: int
    mask_mixed: int


class EntryFields(NamedTuple):
    """Of the projection and the two mixings after it."""

    history: int
    history_row: int
    projected: int
    affine: int
    row_sums: int
    future: int
    statistics: int
    past: MixingFields
    of_future: MixingFields | None
    plane: int
    plane_row: int
    of_plane: int
    of_weight: int
    of_bias: int
    of_norm: int


class BlockFields(NamedTuple):
    """Of one mixer block. `plane` is what it mixes, `mixed` that after time mixing, `out` where its result goes.

    The forward pass clears in the mask of the time mixing what its ReLU cut: the backward pass needs nothing else.
    """

    width: int
    static: int
    static_mixing: MixingFields | None
    plane: int
    normed: int
    inverse: int
    mask: int
    mixed: int
    feature_mixing: MixingFields
    projects: bool
    out: int
    out_row: int
    of_plane: int
    of_mixed: int
    of_out: int
    of_weight: int
    of_bias: int


class HeadFields(NamedTuple):
    """Of the output layer and the way back to the window's own units."""

    plane: int
    forecast: int
    forecast_row: int
    statistics: int
    of_plane: int
    of_forecast: int
    of_norm: int


class Plan(NamedTuple):
    """A network's memory, as its kernels see it."""

    sizes: Sizes
    entry: EntryFields
    blocks: tuple[BlockFields, ...]
    head: HeadFields
    masks: tuple[tuple[int, int], ...]
    """Of each dropout, in the order in which the plain network meets them: offset, and features a mask covers."""


def make_plan(model: TSMixer, products: str, *, dropout: bool) -> Plan:
    """Lay out the memory of a network that `why_not` has nothing against."""
    return _Planner(model).plan(products, dropout=dropout)


def padded(n: int) -> int:
    """The next multiple of the alignment."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n and 16, the least that a product can take."""
    return max(ALIGNMENT, 1 << (n - 1).bit_length())


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
        self._used = 0
        self._mask_used = 0
        self._masks: list[tuple[int, int]] = []

    def plan(self, products: str, *, dropout: bool) -> Plan:
        shapes, hidden, horizon = self._shapes, self._hidden, self._shapes.horizon
        n_static = 1 if shapes.n_static else 0
        n_blocks = len(self._model.blocks)
        widths = [hidden * ((2 if n == 0 and shapes.n_future else 1) + n_static) for n in range(n_blocks)]
        planes = [self._field(horizon * width) for width in [*widths, hidden]]
        of_planes = [self._field(horizon * width) for width in [*widths, hidden]]
        statistics, of_norm = self._field(2 * shapes.n_targets), self._field(2 * shapes.n_targets)
        # Masks are handed out in the order in which the plain network draws them.
        of_future = self._mixing() if shapes.n_future else None
        static = [self._mixing(static=True) if n_static else None for _ in range(n_blocks)]
        past = self._mixing()
        rows = [*widths, hidden]
        blocks = tuple(
            self._block(static[n], rows[n : n + 2], planes[n : n + 2], of_planes[n : n + 2]) for n in range(n_blocks)
        )
        columns = shapes.n_targets + shapes.n_past + shapes.n_future
        column_row, outputs = padded(columns), shapes.n_targets * shapes.n_quantiles
        entry = EntryFields(
            history=self._field(shapes.input_size * column_row),
            history_row=column_row,
            projected=self._field(horizon * column_row),
            affine=self._field(horizon * column_row),
            row_sums=self._field(horizon),
            future=self._field(horizon * padded(shapes.n_future)),
            statistics=statistics,
            past=past,
            of_future=of_future,
            plane=planes[0],
            plane_row=widths[0],
            of_plane=of_planes[0],
            of_weight=self._field(horizon * shapes.input_size),
            of_bias=self._field(horizon),
            of_norm=of_norm,
        )
        head = HeadFields(
            plane=planes[-1],
            forecast=self._field(horizon * padded(outputs)),
            forecast_row=padded(outputs),
            statistics=statistics,
            of_plane=of_planes[-1],
            of_forecast=self._field(horizon * padded(outputs)),
            of_norm=of_norm,
        )
        sizes = Sizes(
            length=shapes.input_size,
            horizon=horizon,
            horizon_tile=power_of_two(horizon),
            hidden=hidden,
            hidden_tile=power_of_two(hidden),
            targets=shapes.n_targets,
            columns=columns,
            columns_tile=power_of_two(columns),
            outputs=outputs,
            levels=shapes.n_quantiles,
            future=shapes.n_future,
            static=shapes.n_static,
            static_tile=power_of_two(max(1, shapes.n_static)),
            norm=norm_kind(self._model),
            products=products,
            dropout=dropout,
            chunk=min(CHUNK, power_of_two(hidden)),
            record=self._used,
            mask_record=self._mask_used,
        )
        return Plan(sizes, entry, blocks, head, tuple(self._masks))

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
            of_contracted=self._field(plane),
            of_entered=self._field(entered if static else self._shapes.horizon * entered),
            mask_hidden=self._mask(self._hidden),
            mask_mixed=self._mask(self._hidden),
        )

    def _block(
        self, static: MixingFields | None, rows: list[int], planes: list[int], of_planes: list[int]
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
            of_plane=of_planes[0],
            of_mixed=self._field(horizon * width),
            of_out=of_planes[1],
            of_weight=self._field(horizon * horizon),
            of_bias=self._field(horizon),
        )
