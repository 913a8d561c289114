"""From the window to the plane that the first block mixes, and back: one sample a program.

Reversible norm, projection of the hours, mixing of what came out, and beside it mixing of the
future covariates.

Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.feature_mixing import (
    add_enter_bias,
    enter_features,
    feature_mixing_backward,
    finish_feature_mixing,
    product,
)
from tuner.models.fused.kernels.pieces import (
    EPS,
    exact_dot,
    follow,
    load_plane,
    load_vector,
    store_hours,
    store_plane,
    tile_of,
    zeros,
)

HOURS = tl.constexpr(64)
"""Of the window at once."""


@triton.jit
def load_hours(window, first, Z: tl.constexpr):
    """(HOURS, columns) of a window from an hour on, zeros beyond."""
    hours = first + tl.arange(0, HOURS)
    k = tl.arange(0, Z.columns_tile)
    inside = (hours < Z.length)[:, None] & (k < Z.columns)[None, :]
    return tl.load(window + hours[:, None] * Z.columns + k[None, :], mask=inside, other=0.0)


@triton.jit
def history_tile(record, first, E: tl.constexpr, Z: tl.constexpr):
    """Where a record keeps (HOURS, columns) of its normalised window from an hour on; a mask."""
    return tile_of(
        record + E.history + first * E.history_row,
        E.history_row,
        Z.length - first,
        Z.columns,
        HOURS,
        Z.columns_tile,
    )


@triton.jit
def window_statistics(window, Z: tl.constexpr):
    """Mean and deviation, (columns,), of the targets over the window; 0 and 1 of the others."""
    LENGTH: tl.constexpr = Z.length
    k = tl.arange(0, Z.columns_tile)
    sums = zeros(HOURS, Z.columns_tile)
    for first in range(0, LENGTH, HOURS):
        sums += load_hours(window, first, Z)
    mean = tl.where(k < Z.targets, tl.sum(sums, axis=0) / Z.length, 0.0)
    squares = zeros(HOURS, Z.columns_tile)
    for first in range(0, LENGTH, HOURS):
        hours = first + tl.arange(0, HOURS)
        centred = load_hours(window, first, Z) - mean[None, :]
        centred = tl.where((hours < Z.length)[:, None], centred, 0.0)
        squares += centred * centred
    deviation = tl.where(k < Z.targets, tl.sqrt_rn(tl.sum(squares, axis=0) / Z.length + EPS), 1.0)
    return mean, deviation


@triton.jit
def project(record, window, weights, E: tl.constexpr, Z: tl.constexpr):
    """The reversible norm and the projection: (horizon, columns), left in the record too."""
    LENGTH: tl.constexpr = Z.length
    k = tl.arange(0, Z.columns_tile)
    mean, deviation = window_statistics(window, Z)
    tl.store(record + E.statistics + k, mean, mask=k < Z.targets)
    tl.store(record + E.statistics + Z.targets + k, deviation, mask=k < Z.targets)
    scale = tl.load(weights.norm_weight + k, mask=k < Z.targets, other=1.0)
    shift = tl.load(weights.norm_bias + k, mask=k < Z.targets, other=0.0)
    projected = zeros(Z.horizon_tile, Z.columns_tile)
    weights_so_far = zeros(Z.horizon_tile, HOURS)
    for first in range(0, LENGTH, HOURS):
        hours = first + tl.arange(0, HOURS)
        normed = (load_hours(window, first, Z) - mean[None, :]) / deviation[None, :]
        normed = tl.where((hours < Z.length)[:, None], normed, 0.0)
        history_at, here = history_tile(record, first, E, Z)
        tl.store(history_at, normed * scale[None, :] + shift[None, :], mask=here)
        weight_at, there = tile_of(
            weights.projection + first, Z.length, Z.horizon, Z.length - first, Z.horizon_tile, HOURS
        )
        weight = tl.load(weight_at, mask=there, other=0.0)
        projected = exact_dot(weight, normed, projected, Z)
        weights_so_far += weight
    bias = load_vector(weights.projection_bias, Z.horizon, Z.horizon_tile)
    row_sums = tl.sum(weights_so_far, axis=1)
    store_hours(record + E.row_sums, row_sums, Z)
    # The affine step of the norm, taken after the projection: W (z w + b) + c = w W z + b W1 + c.
    affine = projected * scale[None, :] + row_sums[:, None] * shift[None, :] + bias[:, None]
    pointers, inside = tile_of(
        record + E.projected, E.history_row, Z.horizon, Z.columns, Z.horizon_tile, Z.columns_tile
    )
    tl.store(pointers, projected, mask=inside)
    tl.store(pointers + (E.affine - E.projected), affine, mask=inside)
    return affine


@triton.jit
def mix_entry(
    record,
    masks,
    x,
    out,
    mixing,
    F: tl.constexpr,
    OUT_ROW: tl.constexpr,
    N_IN: tl.constexpr,
    scale,
    Z: tl.constexpr,
):
    """A feature mixing of x (horizon, inputs' tile): so few of them that they fit one product."""
    zero = zeros(Z.horizon_tile, Z.hidden_tile)
    tile: tl.constexpr = triton.next_power_of_2(max(N_IN, 16))
    entered, residual = enter_features(x, zero, zero, 0, mixing, N_IN, tile, N_IN, True, Z)
    entered, residual = add_enter_bias(entered, residual, mixing, True, Z)
    finish_feature_mixing(record, masks, entered, residual, out, mixing, F, OUT_ROW, scale, Z)


@triton.jit
def count_draw(state):
    if tl.program_id(0) == 0:
        tl.store(state + 1, tl.load(state + 1) + 1)


@triton.jit
def enter_forward(
    past,
    future,
    workspace,
    masks,
    state,
    weights,
    past_mixing,
    future_mixing,
    scale_at,
    E: tl.constexpr,
    Z: tl.constexpr,
    DRAWN: tl.constexpr,
    early: tl.constexpr,
):
    """past (B, length, columns), future (B, horizon, future) -> the first plane, past first.

    DRAWN: the masks are fresh, and their draw is counted here in `state`: while they were drawn
        every program read it.
    """
    PAST: tl.constexpr = E.past_mixing
    FUTURE: tl.constexpr = E.future_mixing
    follow(early)
    scale = tl.load(scale_at)
    if DRAWN:
        count_draw(state)
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    affine = project(record, past + sample * (Z.length * Z.columns), weights, E, Z)
    out = record + E.plane
    if Z.future > 0:
        future_tile: tl.constexpr = triton.next_power_of_2(max(Z.future, 16))
        future_row: tl.constexpr = (Z.future + 15) // 16 * 16
        source, inside = tile_of(
            future + sample * (Z.horizon * Z.future),
            Z.future,
            Z.horizon,
            Z.future,
            Z.horizon_tile,
            future_tile,
        )
        values = tl.load(source, mask=inside, other=0.0)
        pointers, inside = tile_of(
            record + E.future, future_row, Z.horizon, Z.future, Z.horizon_tile, future_tile
        )
        tl.store(pointers, values, mask=inside)
        mix_entry(
            record,
            mask_record,
            values,
            out + Z.hidden,
            future_mixing,
            FUTURE,
            E.plane_row,
            Z.future,
            scale,
            Z,
        )
    mix_entry(record, mask_record, affine, out, past_mixing, PAST, E.plane_row, Z.columns, scale, Z)


@triton.jit
def enter_backward(
    workspace,
    masks,
    past_mixing,
    future_mixing,
    scale_at,
    E: tl.constexpr,
    Z: tl.constexpr,
    early: tl.constexpr,
):
    """Leaves what the gradients of the parameters are summed from; the window itself needs none."""
    follow(early)
    scale = tl.load(scale_at)
    PAST: tl.constexpr = E.past_mixing
    FUTURE: tl.constexpr = E.future_mixing
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    if Z.future > 0:
        grad_plane = load_plane(record + E.grad_plane + Z.hidden, E.plane_row, Z)
        grad_entered, grad_residual = feature_mixing_backward(
            record, mask_record, grad_plane, future_mixing, FUTURE, scale, Z
        )
        store_plane(record + FUTURE.grad_entered, 2 * Z.hidden, grad_entered, Z)
        store_plane(record + FUTURE.grad_entered + Z.hidden, 2 * Z.hidden, grad_residual, Z)
    grad_plane = load_plane(record + E.grad_plane, E.plane_row, Z)
    grad_entered, grad_residual = feature_mixing_backward(
        record, mask_record, grad_plane, past_mixing, PAST, scale, Z
    )
    store_plane(record + PAST.grad_entered, 2 * Z.hidden, grad_entered, Z)
    store_plane(record + PAST.grad_entered + Z.hidden, 2 * Z.hidden, grad_residual, Z)
    tl.debug_barrier()
    grad_affine = product(
        record + PAST.grad_entered,
        2 * Z.hidden,
        past_mixing.enter,
        2 * Z.hidden,
        Z.columns,
        Z.columns,
        1,
        Z.columns_tile,
        Z.chunk,
        Z,
    )
    project_backward(record, grad_affine, E, Z)


@triton.jit
def project_backward(record, grad_affine, E: tl.constexpr, Z: tl.constexpr):
    """Each sample's share of the gradients of the projection and of the reversible norm."""
    LENGTH: tl.constexpr = Z.length
    k = tl.arange(0, Z.columns_tile)
    t = tl.arange(0, Z.horizon_tile)
    inside = (t < Z.horizon)[:, None] & (k < Z.columns)[None, :]
    grad_affine = tl.where(inside, grad_affine, 0.0)
    pointers, inside = tile_of(
        record + E.projected, E.history_row, Z.horizon, Z.columns, Z.horizon_tile, Z.columns_tile
    )
    projected = tl.load(pointers, mask=inside, other=0.0)
    row_sums = load_vector(record + E.row_sums, Z.horizon, Z.horizon_tile)
    # The head's way back, done before, has left its own share of the same two vectors here.
    target = k < Z.targets
    grad_weight = tl.load(record + E.grad_norm + k, mask=target, other=0.0)
    grad_bias = tl.load(record + E.grad_norm + Z.targets + k, mask=target, other=0.0)
    grad_weight += tl.sum(grad_affine * projected, axis=0)
    grad_bias += tl.sum(grad_affine * row_sums[:, None], axis=0)
    tl.debug_barrier()
    tl.store(record + E.grad_norm + k, grad_weight, mask=target)
    tl.store(record + E.grad_norm + Z.targets + k, grad_bias, mask=target)
    store_hours(record + E.grad_bias, tl.sum(grad_affine, axis=1), Z)
    for first in range(0, LENGTH, HOURS):
        history_at, here = history_tile(record, first, E, Z)
        history = tl.load(history_at, mask=here, other=0.0)
        share = exact_dot(grad_affine, tl.trans(history), zeros(Z.horizon_tile, HOURS), Z)
        share_at, there = tile_of(
            record + E.grad_weight + first,
            Z.length,
            Z.horizon,
            Z.length - first,
            Z.horizon_tile,
            HOURS,
        )
        tl.store(share_at, share, mask=there)
