"""A whole mixer block and its gradient: one sample a program.

The mixed static covariates join the plane as its last features; then its hours are mixed, then its
features.

Letters: see pieces.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.pieces import (
    EPS,
    apply_affine,
    before_norm,
    covered,
    drop,
    enter_stored,
    exact_dot,
    feature_mixing_backward,
    finish_feature_mixing,
    follow,
    inside_plane,
    load_affine,
    load_mask,
    load_plane,
    load_vector,
    mask_tile,
    moments,
    over_norm,
    product,
    relu,
    store_hours,
    store_plane,
    tile_of,
    zero_vector,
    zeros,
)

# Time mixing and its gradient, some features at a time, in one sample.


@triton.jit
def load_linear(time, Z: tl.constexpr):
    """The time mixing's weight (hours, hours)."""
    pointers, square = tile_of(
        time.linear, Z.horizon, Z.horizon, Z.horizon, Z.horizon_tile, Z.horizon_tile
    )
    return tl.load(pointers, mask=square, other=0.0)


@triton.jit
def time_mixing_slice(plane, masks, first, weight, bias, B: tl.constexpr, scale, Z: tl.constexpr):
    """Linear over time for each feature, ReLU, dropout, residual; the mask keeps what ReLU kept."""
    entered = exact_dot(weight, plane, zeros(Z.horizon_tile, Z.hidden_tile), Z) + bias[:, None]
    hidden = drop(relu(entered), masks + B.mask + first, B.width, scale, Z)
    kept_at, within = mask_tile(masks + B.mask + first, B.width, Z)
    tl.store(kept_at, (hidden > 0).to(tl.uint8), mask=within)
    return plane + hidden


@triton.jit
def time_mixing(record, masks, time, B: tl.constexpr, scale, Z: tl.constexpr):
    """A time mixing, norm included, of a plane in memory, `hidden` features at once."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    weight = load_linear(time, Z)
    bias = load_vector(time.linear_bias, Z.horizon, Z.horizon_tile)
    mean = zero_vector(Z.horizon_tile)
    squares = zero_vector(Z.horizon_tile)
    for first in range(0, WIDTH, HIDDEN):
        plane = load_plane(record + B.plane + first, B.width, Z)
        mixed = time_mixing_slice(plane, masks, first, weight, bias, B, scale, Z)
        store_plane(record + B.normed + first, B.width, mixed, Z)
        # The moments of all so far and of these, joined: Chan, Golub and LeVeque, 1983.
        here, squares_here = moments(mixed, Z)
        apart = here - mean
        share = Z.hidden / (first + Z.hidden)
        squares += squares_here
        if Z.norm != "rms":
            squares += apart * apart * (covered(Z.hidden, Z) * (1 - share))
            mean += apart * share
    inverse = tl.rsqrt(squares / covered(B.width, Z) + EPS)
    store_hours(record + B.inverse, inverse, Z)
    tl.debug_barrier()
    for first in range(0, WIDTH, HIDDEN):
        mixed = load_plane(record + B.normed + first, B.width, Z)
        normed = (mixed - mean[:, None]) * inverse[:, None]
        tl.debug_barrier()
        store_plane(record + B.normed + first, B.width, normed, Z)
        store_plane(
            record + B.mixed + first, B.width, apply_affine(normed, time, first, B.width, Z), Z
        )


@triton.jit
def time_mixing_backward(record, masks, time, B: tl.constexpr, scale, Z: tl.constexpr):
    """Back through `time_mixing`: leave the plane's gradient, and this sample's share of others."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    grad_sum = zeros(Z.horizon_tile, Z.hidden_tile)
    grad_normed_sum = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in range(0, WIDTH, HIDDEN):
        grad_scaled = load_plane(record + B.grad_mixed + first, B.width, Z)
        grad_scaled *= load_affine(time.weight, first, B.width, Z)
        normed = load_plane(record + B.normed + first, B.width, Z)
        grad_sum += grad_scaled
        grad_normed_sum += grad_scaled * normed
    mean_grad = over_norm(grad_sum, Z) / covered(B.width, Z)
    mean_grad_normed = over_norm(grad_normed_sum, Z) / covered(B.width, Z)
    inverse = load_vector(record + B.inverse, Z.horizon, Z.horizon_tile)
    linear = load_linear(time, Z)
    grad_linear = zeros(Z.horizon_tile, Z.horizon_tile)
    grad_hours = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in tl.range(0, WIDTH, HIDDEN, num_stages=1):
        grad_scaled = load_plane(record + B.grad_mixed + first, B.width, Z)
        grad_scaled *= load_affine(time.weight, first, B.width, Z)
        normed = load_plane(record + B.normed + first, B.width, Z)
        grad_sum = before_norm(grad_scaled, normed, inverse, mean_grad, mean_grad_normed, Z)
        # Back through `time_mixing_slice`.
        grad_sum = tl.where(inside_plane(Z), grad_sum, 0.0)
        grad_entered = tl.where(load_mask(masks + B.mask + first, B.width, Z) != 0, grad_sum, 0.0)
        if Z.dropout:
            grad_entered = grad_entered * scale
        plane = load_plane(record + B.plane + first, B.width, Z)
        grad_linear = exact_dot(grad_entered, tl.trans(plane), grad_linear, Z)
        grad_plane = exact_dot(tl.trans(linear), grad_entered, grad_sum, Z)
        store_plane(record + B.grad_plane + first, B.width, grad_plane, Z)
        grad_hours = grad_hours + grad_entered
    pointers, square = tile_of(
        record + B.grad_weight, Z.horizon, Z.horizon, Z.horizon, Z.horizon_tile, Z.horizon_tile
    )
    tl.store(pointers, grad_linear, mask=square)
    store_hours(record + B.grad_bias, tl.sum(grad_hours, axis=1), Z)


@triton.jit
def enter_static(values, weight, bias, Z: tl.constexpr):
    """The first product of a static mixing, (static,) -> (hidden,): few numbers, so a sum."""
    n = tl.arange(0, Z.hidden_tile)[:, None]
    s = tl.arange(0, Z.static_tile)[None, :]
    tile = tl.load(weight + n * Z.static + s, mask=(n < Z.hidden) & (s < Z.static), other=0.0)
    return tl.sum(tile * values[None, :], axis=1) + load_vector(bias, Z.hidden, Z.hidden_tile)


@triton.jit
def block_forward(
    static,
    workspace,
    masks,
    static_mixing,
    time,
    features,
    scale_at,
    B: tl.constexpr,
    Z: tl.constexpr,
    Y: tl.constexpr,
    early: tl.constexpr,
):
    """static (B, static), and the record's plane without what these add to it -> the next plane."""
    follow(early)
    scale = tl.load(scale_at)
    F: tl.constexpr = B.feature_mixing
    G: tl.constexpr = B.static_mixing
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    if Z.static > 0:
        values = load_vector(static + sample * Z.static, Z.static, Z.static_tile)
        s = tl.arange(0, Z.static_tile)
        tl.store(record + B.static + s, values, mask=s < Z.static)
        # A feature mixing of one hour that stands for all: dropout alone tells the hours apart.
        hours = zeros(Z.horizon_tile, Z.hidden_tile)
        mixing = static_mixing
        entered = enter_static(values, mixing.enter, mixing.enter_bias, Z)
        lower = mixing.enter + Z.hidden * Z.static
        residual = enter_static(values, lower, mixing.enter_bias + Z.hidden, Z)
        entered = hours + entered[None, :]
        residual = hours + residual[None, :]
        joined = record + B.plane + (B.width - Z.hidden)
        finish_feature_mixing(
            record, mask_record, entered, residual, joined, mixing, G, B.width, scale, Z
        )
        tl.debug_barrier()
    time_mixing(record, mask_record, time, B, scale, Y)
    tl.debug_barrier()
    entered, residual = enter_stored(record + B.mixed, B.width, B.width, B.projects, features, Z)
    finish_feature_mixing(
        record, mask_record, entered, residual, record + B.out, features, F, B.out_row, scale, Z
    )


@triton.jit
def block_backward(
    workspace,
    masks,
    static_mixing,
    time,
    features,
    scale_at,
    B: tl.constexpr,
    Z: tl.constexpr,
    Y: tl.constexpr,
    early: tl.constexpr,
):
    """From the gradient of the block's result to that of its plane; static covariates need none."""
    follow(early)
    scale = tl.load(scale_at)
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    F: tl.constexpr = B.feature_mixing
    G: tl.constexpr = B.static_mixing
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    grad_out = load_plane(record + B.grad_out, B.out_row, Z)
    grad_entered, grad_residual = feature_mixing_backward(
        record, mask_record, grad_out, features, F, scale, Z
    )
    entered_row: tl.constexpr = 2 * Z.hidden if B.projects else Z.hidden
    store_plane(record + F.grad_entered, entered_row, grad_entered, Z)
    if B.projects:
        store_plane(record + F.grad_entered + Z.hidden, entered_row, grad_residual, Z)
    tl.debug_barrier()
    entered_at = record + F.grad_entered
    for first in range(0, WIDTH, HIDDEN):
        weight = features.enter + first
        grad_mixed = product(
            entered_at, entered_row, weight, entered_row, Z.hidden, B.width, 1, Z.hidden_tile, Z
        )
        if not B.projects:
            grad_mixed += grad_residual
        store_plane(record + B.grad_mixed + first, B.width, grad_mixed, Z)
    tl.debug_barrier()
    time_mixing_backward(record, mask_record, time, B, scale, Y)
    if Z.static > 0:
        tl.debug_barrier()
        grad_joined = load_plane(record + B.grad_plane + (B.width - Z.hidden), B.width, Z)
        grad_entered, grad_residual = feature_mixing_backward(
            record, mask_record, grad_joined, static_mixing, G, scale, Z
        )
        n = tl.arange(0, Z.hidden_tile)
        tl.store(record + G.grad_entered + n, tl.sum(grad_entered, axis=0), mask=n < Z.hidden)
        tl.store(
            record + G.grad_entered + Z.hidden + n, tl.sum(grad_residual, axis=0), mask=n < Z.hidden
        )
