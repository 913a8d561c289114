"""Sizes of a fused network, and where what its kernels keep lies in memory.

Every sample has one *record* in the workspace: a row of float32 numbers that holds its planes,
first those that the forward pass leaves for the backward pass, then the gradients. Fields are
multiples of 16 numbers wide, so that every row of a plane starts on a 64-byte boundary. A second
record, of bytes, holds the masks of dropout.

All of these are named tuples of numbers: they are compiled into the kernels as constants.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from tuner.models.layers import FeatureRMSNorm, TimeFirst
from tuner.models.tsmixer import TSMixer

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
