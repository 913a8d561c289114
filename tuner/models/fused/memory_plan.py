"""Sizes of a fused network, and where what its kernels keep lies in memory.

Every sample has one *record* in the workspace: a row of float32 numbers that holds its planes,
first those that the forward pass leaves for the backward pass, then the gradients. Fields are
multiples of 16 numbers wide, so that every row of a plane starts on a 64-byte boundary. A second
record, of bytes, holds the masks of dropout.

All of these are named tuples of numbers: they are compiled into the kernels as constants.
"""

from __future__ import annotations

from typing import NamedTuple

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
