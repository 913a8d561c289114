"""Both ends of the network and their gradients, one sample a program: the entry and the head."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.pieces import (
    EPS,
    add_enter_bias,
    enter_features,
    exact_dot,
    feature_mixing_backward,
    finish_feature_mixing,
    follow,
    load_plane,
    load_vector,
    product,
    store_hours,
    store_plane,
    tile_of,
    weight_tile,
    zeros,
)

# From the window to the plane that the first block mixes, and back: one sample a program.


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
    history, left = record + E.history + first * E.history_row, Z.length - first
    return tile_of(history, E.history_row, left, Z.columns, HOURS, Z.columns_tile)


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
    if DRAWN:  # noqa: SIM102 - known when it is compiled, and the other is not
        if tl.program_id(0) == 0:
            tl.store(state + 1, tl.load(state + 1) + 1)
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    affine = project(record, past + sample * (Z.length * Z.columns), weights, E, Z)
    out = record + E.plane
    if Z.future > 0:
        future_tile: tl.constexpr = triton.next_power_of_2(max(Z.future, 16))
        future_row: tl.constexpr = (Z.future + 15) // 16 * 16
        hours = future + sample * (Z.horizon * Z.future)
        source, inside = tile_of(hours, Z.future, Z.horizon, Z.future, Z.horizon_tile, future_tile)
        values = tl.load(source, mask=inside, other=0.0)
        pointers, inside = tile_of(
            record + E.future, future_row, Z.horizon, Z.future, Z.horizon_tile, future_tile
        )
        tl.store(pointers, values, mask=inside)
        at = out + Z.hidden
        mix_entry(
            record, mask_record, values, at, future_mixing, FUTURE, E.plane_row, Z.future, scale, Z
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
    entered_row: tl.constexpr = 2 * Z.hidden
    entered_at, weight = record + PAST.grad_entered, past_mixing.enter
    grad_affine = product(
        entered_at, entered_row, weight, entered_row, Z.columns, Z.columns, 1, Z.columns_tile, Z
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
        shares, left = record + E.grad_weight + first, Z.length - first
        share_at, there = tile_of(shares, Z.length, Z.horizon, left, Z.horizon_tile, HOURS)
        tl.store(share_at, share, mask=there)


# The output layer and the way back to the window's own units: one sample a program.


NORM_EPS = tl.constexpr(1e-10)
"""The reversible norm's eps, squared: what its inverse adds to the weight it divides by."""


@triton.jit
def slope_and_level(record, weights, n, H: tl.constexpr, Z: tl.constexpr):
    """Slope and level of outputs `n`: what each is multiplied by, and what is added then."""
    target = n // Z.levels
    inside = n < Z.outputs
    weight = tl.load(weights.norm_weight + target, mask=inside, other=1.0) + NORM_EPS
    bias = tl.load(weights.norm_bias + target, mask=inside, other=0.0)
    mean = tl.load(record + H.statistics + target, mask=inside, other=0.0)
    deviation = tl.load(record + H.statistics + Z.targets + target, mask=inside, other=0.0)
    slope = deviation / weight
    return slope, mean - bias * slope


@triton.jit
def store_norm_gradients(record, weights, sums, products, H: tl.constexpr, Z: tl.constexpr):
    """This sample's share of the reversible norm's gradients, left in its record.

    From the sums by target (rows) of the outputs' gradients and of those times the outputs.
    """
    k = tl.arange(0, Z.columns_tile)
    target = k < Z.targets
    grad_bias = -tl.sum(sums, axis=1)
    divisor = tl.load(weights.norm_weight + k, mask=target, other=1.0) + NORM_EPS
    bias = tl.load(weights.norm_bias + k, mask=target, other=0.0)
    tl.store(
        record + H.grad_norm + k,
        -(bias * grad_bias + tl.sum(products, axis=1)) / divisor,
        mask=target,
    )
    tl.store(record + H.grad_norm + Z.targets + k, grad_bias, mask=target)


@triton.jit
def forecast_tile(
    record, weights, n, H: tl.constexpr, Z: tl.constexpr, N: tl.constexpr, FEATURES: tl.constexpr
):
    """(horizon, N): the output layer's result for N outputs `n`, FEATURES summed over at once."""
    HIDDEN: tl.constexpr = Z.hidden
    t = tl.arange(0, Z.horizon_tile)
    forecast = zeros(Z.horizon_tile, N)
    for start in range(0, HIDDEN, FEATURES):
        f = start + tl.arange(0, FEATURES)
        inside = (t < Z.horizon)[:, None] & (f < Z.hidden)[None, :]
        at = record + H.plane + t[:, None] * Z.hidden + f[None, :]
        left = tl.load(at, mask=inside, other=0.0)
        right = weight_tile(weights.linear, f, n, Z.hidden, Z.outputs, 1, Z.hidden)
        forecast = exact_dot(left, right, forecast, Z)
    return forecast + tl.load(weights.linear_bias + n, mask=n < Z.outputs, other=0.0)[None, :]


@triton.jit
def forecast_tile_backward(
    record,
    weights,
    n,
    forecast,
    grad_forecast,
    grad_plane,
    sums,
    products,
    H: tl.constexpr,
    Z: tl.constexpr,
):
    """Back through `forecast_tile`: store its gradient, and add what it has in three sums.

    Those are of the plane's gradient, (horizon, hidden), and of the outputs' gradients and those
    times the outputs, by target: (columns, chunk) each.
    """
    t = tl.arange(0, Z.horizon_tile)
    h = tl.arange(0, Z.hidden_tile)
    k = tl.arange(0, Z.columns_tile)
    inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
    pointers = record + H.grad_forecast + t[:, None] * H.forecast_row + n[None, :]
    tl.store(pointers, grad_forecast, mask=inside)
    belongs = (n // Z.levels)[None, :] == k[:, None]
    sums += tl.where(belongs, tl.sum(grad_forecast, axis=0)[None, :], 0.0)
    products += tl.where(belongs, tl.sum(grad_forecast * forecast, axis=0)[None, :], 0.0)
    weight = weight_tile(weights.linear, n, h, Z.outputs, Z.hidden, Z.hidden, 1)
    return exact_dot(grad_forecast, weight, grad_plane, Z), sums, products


@triton.jit
def head_forward(out, workspace, weights, H: tl.constexpr, Z: tl.constexpr, early: tl.constexpr):
    """The last plane -> out (B, horizon, outputs)."""
    follow(early)
    OUTPUTS: tl.constexpr = Z.outputs
    BLOCK: tl.constexpr = 64
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    t = tl.arange(0, Z.horizon_tile)
    for first in range(0, OUTPUTS, BLOCK):
        n = first + tl.arange(0, BLOCK)
        inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
        forecast = forecast_tile(record, weights, n, H, Z, BLOCK, Z.chunk)
        tl.store(
            record + H.forecast + t[:, None] * H.forecast_row + n[None, :], forecast, mask=inside
        )
        slope, level = slope_and_level(record, weights, n, H, Z)
        restored = forecast * slope[None, :] + level[None, :]
        pointers = out + sample * (Z.horizon * Z.outputs) + t[:, None] * Z.outputs + n[None, :]
        tl.store(pointers, restored, mask=inside)


@triton.jit
def head_backward(
    grad_out, workspace, weights, H: tl.constexpr, Z: tl.constexpr, early: tl.constexpr
):
    """The gradient of `out` -> of the last plane, and each sample's share of the norm's.

    grad_out: (B, horizon, outputs).
    """
    follow(early)
    OUTPUTS: tl.constexpr = Z.outputs
    CHUNK: tl.constexpr = Z.chunk
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    t = tl.arange(0, Z.horizon_tile)
    grad_plane = zeros(Z.horizon_tile, Z.hidden_tile)
    sums = zeros(Z.columns_tile, Z.chunk)
    products = zeros(Z.columns_tile, Z.chunk)
    for first in range(0, OUTPUTS, CHUNK):
        n = first + tl.arange(0, Z.chunk)
        inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
        pointers = grad_out + sample * (Z.horizon * Z.outputs) + t[:, None] * Z.outputs + n[None, :]
        slope, _ = slope_and_level(record, weights, n, H, Z)
        grad_forecast = tl.load(pointers, mask=inside, other=0.0) * slope[None, :]
        forecast = tl.load(
            record + H.forecast + t[:, None] * H.forecast_row + n[None, :], mask=inside, other=0.0
        )
        grad_plane, sums, products = forecast_tile_backward(
            record, weights, n, forecast, grad_forecast, grad_plane, sums, products, H, Z
        )
    store_plane(record + H.grad_plane, Z.hidden, grad_plane, Z)
    store_norm_gradients(record, weights, sums, products, H, Z)


@triton.jit(do_not_specialize=["n_windows"])
def head_train(
    target,
    quantiles,
    loss_sums,
    done,
    n_windows,
    share,
    workspace,
    weights,
    H: tl.constexpr,
    Z: tl.constexpr,
    FEATURES: tl.constexpr,
    early: tl.constexpr,
):
    """Forecast, quantile loss and the way back at once, for a forecast that nothing else wants.

    Leaves what `head_backward` does, and adds up the losses.

    target: (B, horizon, targets). quantiles: (levels,). loss_sums: (B,), float64, gets the sum of
    each sample's losses. done: (), int64, gets `n_windows` more. share: what each number's loss
    weighs. FEATURES: of the plane, summed over at once on the way forward.
    """
    follow(early)
    OUTPUTS: tl.constexpr = Z.outputs
    CHUNK: tl.constexpr = Z.chunk
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    target += sample * (Z.horizon * Z.targets)
    t = tl.arange(0, Z.horizon_tile)
    grad_plane = zeros(Z.horizon_tile, Z.hidden_tile)
    sums = zeros(Z.columns_tile, Z.chunk)
    products = zeros(Z.columns_tile, Z.chunk)
    losses = zeros(Z.horizon_tile, Z.chunk)
    for first in range(0, OUTPUTS, CHUNK):
        n = first + tl.arange(0, Z.chunk)
        inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
        forecast = forecast_tile(record, weights, n, H, Z, Z.chunk, FEATURES)
        slope, base = slope_and_level(record, weights, n, H, Z)
        pointers = target + t[:, None] * Z.targets + (n // Z.levels)[None, :]
        error = tl.load(pointers, mask=inside, other=0.0)
        error -= forecast * slope[None, :] + base[None, :]
        level = tl.load(quantiles + n % Z.levels, mask=n < Z.outputs, other=0.0)[None, :]
        grad_out = tl.where(error < 0, 1 - level, -level)
        losses += tl.where(inside, -grad_out * error, 0.0)
        grad_forecast = tl.where(inside, grad_out * share, 0.0) * slope[None, :]
        grad_plane, sums, products = forecast_tile_backward(
            record, weights, n, forecast, grad_forecast, grad_plane, sums, products, H, Z
        )
    store_plane(record + H.grad_plane, Z.hidden, grad_plane, Z)
    store_norm_gradients(record, weights, sums, products, H, Z)
    tl.store(loss_sums + sample, tl.load(loss_sums + sample) + tl.sum(losses).to(tl.float64))
    if tl.program_id(0) == 0:
        tl.store(done, tl.load(done) + n_windows)
