"""The output layer and the way back to the window's own units: one sample a program.

Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.pieces import exact_dot, follow, store_plane, weight_tile, zeros

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
        left = tl.load(
            record + H.plane + t[:, None] * Z.hidden + f[None, :],
            mask=(t < Z.horizon)[:, None] & (f < Z.hidden)[None, :],
            other=0.0,
        )
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
