"""A whole mixer block and its gradient: one sample a program.

The mixed static covariates join the plane as its last features; then its hours are mixed, then its features.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.pieces import (
    EPS,
    add_enter_bias,
    apply_affine,
    before_norm,
    covered,
    drop,
    enter_features,
    enter_stored,
    exact_dot,
    finish_mixing,
    inside_plane,
    load_affine,
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
    unmix_features,
    zero_vector,
    zeros,
)


@triton.jit
def load_static(base, Z: tl.constexpr):
    return load_vector(base, Z.static, Z.static_tile)


@triton.jit
def enter_static(values, weight, bias, Z: tl.constexpr):
    """The first product of a static mixing, (static,) -> (hidden,): so few numbers that it is a sum."""
    n = tl.arange(0, Z.hidden_tile)[:, None]
    s = tl.arange(0, Z.static_tile)[None, :]
    tile = tl.load(weight + n * Z.static + s, mask=(n < Z.hidden) & (s < Z.static), other=0.0)
    return tl.sum(tile * values[None, :], axis=1) + load_vector(bias, Z.hidden, Z.hidden_tile)


@triton.jit
def mix_static(record, masks, values, out, mixing, F: tl.constexpr, OUT_ROW: tl.constexpr, scale, Z: tl.constexpr):
    """A feature mixing of one hour that stands for all: dropout alone tells the hours apart."""
    hours = zeros(Z.horizon_tile, Z.hidden_tile)
    entered = enter_static(values, mixing.enter, mixing.enter_bias, Z)
    lower = mixing.enter + Z.hidden * Z.static
    residual = enter_static(values, lower, mixing.enter_bias + Z.hidden, Z)
    entered = hours + entered[None, :]
    residual = hours + residual[None, :]
    return finish_mixing(record, masks, entered, residual, out, mixing, F, OUT_ROW, scale, Z)


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
def mix_hours_and_enter(
    record, masks, joined, time, features, B: tl.constexpr, scale, Z: tl.constexpr, Y: tl.constexpr
):
    """A time mixing whose planes stay in registers, and the first product of the feature mixing after it.

    `joined` are the plane's last features where they are `hidden` of Y, too.
    """
    parts: tl.constexpr = B.width // Y.hidden
    inside = inside_plane(Y)
    weight = load_linear(time, Y)
    bias = load_vector(time.linear_bias, Y.horizon, Y.horizon_tile)
    planes = ()
    sums = zeros(Y.horizon_tile, Y.hidden_tile)
    for part in tl.static_range(parts):
        if (Z.static > 0) and (Y.hidden == Z.hidden) and (part == parts - 1):
            plane = joined
        else:
            plane = load_plane(record + B.plane + part * Y.hidden, B.width, Y)
        mixed = mix_some(plane, masks, part * Y.hidden, weight, bias, B, scale, Y)
        planes = planes + (mixed,)  # type: ignore[assignment]  # noqa: RUF005 - no stars here
        sums += tl.where(inside, mixed, 0.0)
    mean = zero_vector(Y.horizon_tile) if Z.norm == "rms" else over_norm(sums, Y) / covered(B.width, Y)
    squares = zeros(Y.horizon_tile, Y.hidden_tile)
    for part in tl.static_range(parts):
        centred = tl.where(inside, planes[part] - mean[:, None], 0.0)
        squares += centred * centred
    inverse = tl.rsqrt(over_norm(squares, Y) / covered(B.width, Y) + EPS)
    store_hours(record + B.inverse, inverse, Y)
    entered = zeros(Z.horizon_tile, Z.hidden_tile)
    residual = zeros(Z.horizon_tile, Z.hidden_tile)
    for part in tl.static_range(parts):
        first = part * Y.hidden
        normed = (planes[part] - mean[:, None]) * inverse[:, None]
        store_plane(record + B.normed + first, B.width, normed, Y)
        mixed = apply_affine(normed, time, first, B.width, Y)
        store_plane(record + B.mixed + first, B.width, mixed, Y)
        entered, residual = enter_features(
            mixed, entered, residual, first, features, Y.hidden, Y.hidden_tile, B.width, B.projects, Z
        )
    if not B.projects:
        if parts == 1:
            residual = mixed
        else:
            tl.debug_barrier()
            residual = load_plane(record + B.mixed, B.width, Z)
    return add_enter_bias(entered, residual, features, B.projects, Z)


@triton.jit
def unmix_hours(record, masks, time, B: tl.constexpr, scale, Z: tl.constexpr):
    """Back through `mix_hours`; leaves the gradient of the plane and this sample's share of the weight's and bias's."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    inside = inside_plane(Z)
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
    weight = load_linear(time, Z)
    of_weight = zeros(Z.horizon_tile, Z.horizon_tile)
    of_hours = zeros(Z.horizon_tile, Z.hidden_tile)
    for first in tl.range(0, WIDTH, HIDDEN, num_stages=1):
        of_scaled = load_plane(record + B.of_mixed + first, B.width, Z)
        of_scaled *= load_affine(time.weight, first, B.width, Z)
        normed = load_plane(record + B.normed + first, B.width, Z)
        of_sum = before_norm(of_scaled, normed, inverse, mean_of, mean_along, Z)
        of_sum = tl.where(inside, of_sum, 0.0)
        kept_at, within = mask_tile(masks + B.mask + first, B.width, Z)
        positive = tl.load(kept_at, mask=within, other=0)
        of_entered = tl.where(positive != 0, of_sum, 0.0)
        if Z.dropout:
            of_entered = of_entered * scale
        plane = load_plane(record + B.plane + first, B.width, Z)
        of_weight = exact_dot(of_entered, tl.trans(plane), of_weight, Z)
        of_hours += of_entered
        of_plane = exact_dot(tl.trans(weight), of_entered, of_sum, Z)
        store_plane(record + B.of_plane + first, B.width, of_plane, Z)
    pointers, square = tile_of(record + B.of_weight, Z.horizon, Z.horizon, Z.horizon, Z.horizon_tile, Z.horizon_tile)
    tl.store(pointers, of_weight, mask=square)
    store_hours(record + B.of_bias, tl.sum(of_hours, axis=1), Z)


@triton.jit
def block_forward(
    static, workspace, masks, of_static, time, features, scale, B: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr
):
    """static (B, static); the plane in the record, but for what static covariates add -> the next plane."""
    F: tl.constexpr = B.feature_mixing
    G: tl.constexpr = B.static_mixing
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    if Z.static > 0:
        values = load_static(static + sample * Z.static, Z)
        s = tl.arange(0, Z.static_tile)
        tl.store(record + B.static + s, values, mask=s < Z.static)
        joined_at = record + B.plane + (B.width - Z.hidden)
        joined = mix_static(record, mask_record, values, joined_at, of_static, G, B.width, scale, Z)
        if (not B.kept) or (Y.hidden != Z.hidden):
            tl.debug_barrier()
    else:
        joined = zeros(Z.horizon_tile, Z.hidden_tile)
    if B.kept:
        entered, residual = mix_hours_and_enter(record, mask_record, joined, time, features, B, scale, Z, Y)
    else:
        mix_hours(record, mask_record, time, B, scale, Y)
        tl.debug_barrier()
        entered, residual = enter_stored(record + B.mixed, B.width, B.width, B.projects, features, Z)
    finish_mixing(record, mask_record, entered, residual, record + B.out, features, F, B.out_row, scale, Z)


@triton.jit
def block_backward(
    workspace, masks, of_static, time, features, scale, B: tl.constexpr, Z: tl.constexpr, Y: tl.constexpr
):
    """From the gradient of the block's result to that of its plane; the static covariates themselves need none."""
    WIDTH: tl.constexpr = B.width
    HIDDEN: tl.constexpr = Z.hidden
    F: tl.constexpr = B.feature_mixing
    G: tl.constexpr = B.static_mixing
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    of_entered, of_residual = unmix_features(record, mask_record, record + B.of_out, B.out_row, features, F, scale, Z)
    entered_row: tl.constexpr = 2 * Z.hidden if B.projects else Z.hidden
    store_plane(record + F.of_entered, entered_row, of_entered, Z)
    if B.projects:
        store_plane(record + F.of_entered + Z.hidden, entered_row, of_residual, Z)
    tl.debug_barrier()
    for first in range(0, WIDTH, HIDDEN):
        of_mixed = product(
            record + F.of_entered,
            entered_row,
            features.enter + first,
            entered_row,
            Z.hidden,
            B.width,
            1,
            Z.hidden_tile,
            Z.chunk,
            Z,
        )
        if not B.projects:
            of_mixed += of_residual
        store_plane(record + B.of_mixed + first, B.width, of_mixed, Z)
    tl.debug_barrier()
    unmix_hours(record, mask_record, time, B, scale, Y)
    if Z.static > 0:
        tl.debug_barrier()
        joined = record + B.of_plane + (B.width - Z.hidden)
        of_entered, of_residual = unmix_features(record, mask_record, joined, B.width, of_static, G, scale, Z)
        n = tl.arange(0, Z.hidden_tile)
        tl.store(record + G.of_entered + n, tl.sum(of_entered, axis=0), mask=n < Z.hidden)
        tl.store(record + G.of_entered + Z.hidden + n, tl.sum(of_residual, axis=0), mask=n < Z.hidden)
