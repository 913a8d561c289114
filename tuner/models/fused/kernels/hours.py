"""Time mixing and its gradient, some features at a time."""

import triton
import triton.language as tl

from tuner.models.fused.kernels.pieces import (
    EPS,
    apply_affine,
    before_norm,
    covered,
    drop,
    exact_dot,
    inside_plane,
    load_affine,
    load_mask,
    load_plane,
    load_vector,
    mask_tile,
    moments,
    over_norm,
    relu,
    store_hours,
    store_plane,
    tile_of,
    zero_vector,
    zeros,
)


@triton.jit
def load_linear(time, Z: tl.constexpr):
    """The time mixing's weight (hours, hours)."""
    pointers, square = tile_of(time.linear, Z.horizon, Z.horizon, Z.horizon, Z.horizon_tile, Z.horizon_tile)
    return tl.load(pointers, mask=square, other=0.0)


@triton.jit
def mix_some(plane, masks, first, weight, bias, B: tl.constexpr, scale, Z: tl.constexpr):
    """Linear over time for each of `hidden` features, ReLU, dropout, residual; the mask keeps what ReLU kept."""
    entered = exact_dot(weight, plane, zeros(Z.horizon_tile, Z.hidden_tile), Z) + bias[:, None]
    hidden = drop(relu(entered), masks + B.mask + first, B.width, scale, Z)
    kept_at, within = mask_tile(masks + B.mask + first, B.width, Z)
    tl.store(kept_at, (hidden > 0).to(tl.uint8), mask=within)
    return plane + hidden


@triton.jit
def mix_hours(record, masks, time, B: tl.constexpr, scale, Z: tl.constexpr):
    """A time mixing, norm included, of a plane in memory, `hidden` features at once."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    weight = load_linear(time, Z)
    bias = load_vector(time.linear_bias, Z.horizon, Z.horizon_tile)
    mean = zero_vector(Z.horizon_tile)
    squares = zero_vector(Z.horizon_tile)
    for first in range(0, WIDTH, HIDDEN):
        plane = load_plane(record + B.plane + first, B.width, Z)
        mixed = mix_some(plane, masks, first, weight, bias, B, scale, Z)
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
        store_plane(record + B.mixed + first, B.width, apply_affine(normed, time, first, B.width, Z), Z)


@triton.jit
def unmix_some(record, masks, of_sum, first, linear, of_linear, of_hours, B: tl.constexpr, scale, Z: tl.constexpr):
    """Back through `mix_some`: stores the gradient of the plane, returns the sums for weight and bias."""
    of_sum = tl.where(inside_plane(Z), of_sum, 0.0)
    of_entered = tl.where(load_mask(masks + B.mask + first, B.width, Z) != 0, of_sum, 0.0)
    if Z.dropout:
        of_entered = of_entered * scale
    plane = load_plane(record + B.plane + first, B.width, Z)
    of_linear = exact_dot(of_entered, tl.trans(plane), of_linear, Z)
    of_plane = exact_dot(tl.trans(linear), of_entered, of_sum, Z)
    store_plane(record + B.of_plane + first, B.width, of_plane, Z)
    return of_linear, of_hours + of_entered


@triton.jit
def leave_shares(record, of_linear, of_hours, B: tl.constexpr, Z: tl.constexpr):
    """This sample's share of the gradients of the time mixing's weight and bias."""
    pointers, square = tile_of(record + B.of_weight, Z.horizon, Z.horizon, Z.horizon, Z.horizon_tile, Z.horizon_tile)
    tl.store(pointers, of_linear, mask=square)
    store_hours(record + B.of_bias, tl.sum(of_hours, axis=1), Z)


@triton.jit
def unmix_hours(record, masks, time, B: tl.constexpr, scale, Z: tl.constexpr):
    """Back through `mix_hours`; leaves the gradient of the plane and this sample's share of the weight's and bias's."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    sum_of = zeros(Z.horizon_tile, Z.hidden_tile)
    sum_along = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in range(0, WIDTH, HIDDEN):
        of_scaled = load_plane(record + B.of_mixed + first, B.width, Z)
        of_scaled *= load_affine(time.weight, first, B.width, Z)
        normed = load_plane(record + B.normed + first, B.width, Z)
        sum_of += of_scaled
        sum_along += of_scaled * normed
    mean_of = over_norm(sum_of, Z) / covered(B.width, Z)
    mean_along = over_norm(sum_along, Z) / covered(B.width, Z)
    inverse = load_vector(record + B.inverse, Z.horizon, Z.horizon_tile)
    linear = load_linear(time, Z)
    of_linear = zeros(Z.horizon_tile, Z.horizon_tile)
    of_hours = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in tl.range(0, WIDTH, HIDDEN, num_stages=1):
        of_scaled = load_plane(record + B.of_mixed + first, B.width, Z)
        of_scaled *= load_affine(time.weight, first, B.width, Z)
        normed = load_plane(record + B.normed + first, B.width, Z)
        of_sum = before_norm(of_scaled, normed, inverse, mean_of, mean_along, Z)
        of_linear, of_hours = unmix_some(record, masks, of_sum, first, linear, of_linear, of_hours, B, scale, Z)
    leave_shares(record, of_linear, of_hours, B, Z)
