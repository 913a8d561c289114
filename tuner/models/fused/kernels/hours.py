"""Time mixing and its gradient: wide planes some features at a time through memory, others in registers.

There a feature mixing's first product is taken at once, as long as its input is at hand.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.features import (
    add_enter_bias,
    enter_features,
    unenter_features,
)
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
    weight_tile,
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
def mix_hours_and_enter(record, masks, joined, time, features, B: tl.constexpr, scale, Z: tl.constexpr):
    """A time mixing whose planes stay in registers, and the first product of the feature mixing after it.

    `joined` are the plane's last features, where there are static covariates.
    """
    parts: tl.constexpr = B.width // Z.hidden
    inside = inside_plane(Z)
    weight = load_linear(time, Z)
    bias = load_vector(time.linear_bias, Z.horizon, Z.horizon_tile)
    planes = ()
    sums = zeros(Z.horizon_tile, Z.hidden_tile)
    for part in tl.static_range(parts):
        if (Z.static > 0) and (part == parts - 1):
            plane = joined
        else:
            plane = load_plane(record + B.plane + part * Z.hidden, B.width, Z)
        mixed = mix_some(plane, masks, part * Z.hidden, weight, bias, B, scale, Z)
        planes = planes + (mixed,)  # type: ignore[assignment]  # noqa: RUF005 - no stars here
        sums += tl.where(inside, mixed, 0.0)
    mean = zero_vector(Z.horizon_tile) if Z.norm == "rms" else over_norm(sums, Z) / covered(B.width, Z)
    squares = zeros(Z.horizon_tile, Z.hidden_tile)
    for part in tl.static_range(parts):
        centred = tl.where(inside, planes[part] - mean[:, None], 0.0)
        squares += centred * centred
    inverse = tl.rsqrt(over_norm(squares, Z) / covered(B.width, Z) + EPS)
    store_hours(record + B.inverse, inverse, Z)
    entered = zeros(Z.horizon_tile, Z.hidden_tile)
    residual = zeros(Z.horizon_tile, Z.hidden_tile)
    for part in tl.static_range(parts):
        first = part * Z.hidden
        normed = (planes[part] - mean[:, None]) * inverse[:, None]
        store_plane(record + B.normed + first, B.width, normed, Z)
        mixed = apply_affine(normed, time, first, B.width, Z)
        store_plane(record + B.mixed + first, B.width, mixed, Z)
        entered, residual = enter_features(
            mixed, entered, residual, first, features, Z.hidden, Z.hidden_tile, B.width, B.projects, Z
        )
        if not B.projects:  # which is so where there is one part
            residual = mixed
    return add_enter_bias(entered, residual, features, B.projects, Z)


@triton.jit
def unmix_some(record, masks, of_sum, first, linear, of_linear, of_hours, B: tl.constexpr, scale, Z: tl.constexpr):
    """Back through `mix_some`: the gradient of the plane, which is stored too, and the sums for weight and bias."""
    of_sum = tl.where(inside_plane(Z), of_sum, 0.0)
    of_entered = tl.where(load_mask(masks + B.mask + first, B.width, Z) != 0, of_sum, 0.0)
    if Z.dropout:
        of_entered = of_entered * scale
    plane = load_plane(record + B.plane + first, B.width, Z)
    of_linear = exact_dot(of_entered, tl.trans(plane), of_linear, Z)
    of_plane = exact_dot(tl.trans(linear), of_entered, of_sum, Z)
    store_plane(record + B.of_plane + first, B.width, of_plane, Z)
    return of_plane, of_linear, of_hours + of_entered


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
    unmix_normed(record, masks, mean_of, mean_along, time, B, scale, Z)


@triton.jit
def unmix_normed(record, masks, mean_of, mean_along, time, B: tl.constexpr, scale, Z: tl.constexpr):
    """The rest of it, from the two means of the gradient that the way back through a norm needs."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    inverse = load_vector(record + B.inverse, Z.horizon, Z.horizon_tile)
    linear = load_linear(time, Z)
    of_linear = zeros(Z.horizon_tile, Z.horizon_tile)
    of_hours = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in tl.range(0, WIDTH, HIDDEN, num_stages=1):
        of_scaled = load_plane(record + B.of_mixed + first, B.width, Z)
        of_scaled *= load_affine(time.weight, first, B.width, Z)
        normed = load_plane(record + B.normed + first, B.width, Z)
        of_sum = before_norm(of_scaled, normed, inverse, mean_of, mean_along, Z)
        _, of_linear, of_hours = unmix_some(record, masks, of_sum, first, linear, of_linear, of_hours, B, scale, Z)
    leave_shares(record, of_linear, of_hours, B, Z)


@triton.jit
def unenter_and_unmix_hours(
    record, masks, of_entered, of_residual, time, features, B: tl.constexpr, scale, Z: tl.constexpr, Y: tl.constexpr
):
    """Back through both, from the gradients of the first product and of its residual, in registers; see `unmix_hours`.

    In loops, so that the compiler does not hold all parts of what they share in registers at once.
    """
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    sum_of = zeros(Z.horizon_tile, Z.hidden_tile)
    sum_along = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in tl.range(0, WIDTH, HIDDEN):
        if B.projects:
            of_mixed = unenter_features(of_entered, of_residual, first, features, Z.hidden, Z.hidden_tile, B.width, Z)
        else:
            n = tl.arange(0, Z.hidden_tile)
            weight = weight_tile(features.enter, n, n, Z.hidden, Z.hidden, B.width, 1)
            of_mixed = exact_dot(of_entered, weight, of_residual, Z)
        store_plane(record + B.of_mixed + first, B.width, of_mixed, Z)
        of_scaled = of_mixed * load_affine(time.weight, first, B.width, Z)
        sum_of += of_scaled
        sum_along += of_scaled * load_plane(record + B.normed + first, B.width, Z)
    mean_of = over_norm(sum_of, Z) / covered(B.width, Z)
    mean_along = over_norm(sum_along, Z) / covered(B.width, Z)
    tl.debug_barrier()
    unmix_normed(record, masks, mean_of, mean_along, time, B, scale, Y)
