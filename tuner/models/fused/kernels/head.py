"""The output layer and the way back to the window's own units: one sample a program."""

import triton
import triton.language as tl

from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.kernels.pieces import exact_dot, store_plane, weight_tile, zeros

NORM_EPS = tl.constexpr(1e-10)
"""The reversible norm's eps, squared: what its inverse adds to the weight it divides by."""


@triton.jit
def slope_and_level(record, weights, n, H: tl.constexpr, Z: tl.constexpr):
    """What an output is multiplied by, and what is added then, for outputs `n`: each belongs to a target."""
    target = n // Z.levels
    inside = n < Z.outputs
    weight = tl.load(weights.norm_weight + target, mask=inside, other=1.0) + NORM_EPS
    bias = tl.load(weights.norm_bias + target, mask=inside, other=0.0)
    mean = tl.load(record + H.statistics + target, mask=inside, other=0.0)
    deviation = tl.load(record + H.statistics + Z.targets + target, mask=inside, other=0.0)
    slope = deviation / weight
    return slope, mean - bias * slope


@triton.jit
def leave_norms_share(record, weights, sums, products, H: tl.constexpr, Z: tl.constexpr):
    """This sample's share of the reversible norm's gradients, from sums by target (rows) of the outputs' gradients and
    of those times the outputs.
    """
    k = tl.arange(0, Z.columns_tile)
    target = k < Z.targets
    of_bias = -tl.sum(sums, axis=1)
    divisor = tl.load(weights.norm_weight + k, mask=target, other=1.0) + NORM_EPS
    bias = tl.load(weights.norm_bias + k, mask=target, other=0.0)
    tl.store(record + H.of_norm + k, -(bias * of_bias + tl.sum(products, axis=1)) / divisor, mask=target)
    tl.store(record + H.of_norm + Z.targets + k, of_bias, mask=target)


@triton.jit
def head_forward(out, workspace, weights, H: tl.constexpr, Z: tl.constexpr, early: tl.constexpr):
    """The last plane -> out (B, horizon, outputs)."""
    follow(early)
    HIDDEN: tl.constexpr = Z.hidden
    OUTPUTS: tl.constexpr = Z.outputs
    CHUNK: tl.constexpr = Z.chunk
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    t = tl.arange(0, Z.horizon_tile)
    BLOCK: tl.constexpr = 64
    for first in range(0, OUTPUTS, BLOCK):
        n = first + tl.arange(0, BLOCK)
        inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
        forecast = zeros(Z.horizon_tile, BLOCK)
        for start in range(0, HIDDEN, CHUNK):
            k = start + tl.arange(0, Z.chunk)
            left = tl.load(
                record + H.plane + t[:, None] * Z.hidden + k[None, :],
                mask=(t < Z.horizon)[:, None] & (k < Z.hidden)[None, :],
                other=0.0,
            )
            right = tl.load(
                weights.linear + k[:, None] + n[None, :] * Z.hidden,
                mask=(k < Z.hidden)[:, None] & (n < Z.outputs)[None, :],
                other=0.0,
            )
            forecast = exact_dot(left, right, forecast, Z)
        forecast += tl.load(weights.linear_bias + n, mask=n < Z.outputs, other=0.0)[None, :]
        tl.store(record + H.forecast + t[:, None] * H.forecast_row + n[None, :], forecast, mask=inside)
        slope, level = slope_and_level(record, weights, n, H, Z)
        restored = forecast * slope[None, :] + level[None, :]
        pointers = out + sample * (Z.horizon * Z.outputs) + t[:, None] * Z.outputs + n[None, :]
        tl.store(pointers, restored, mask=inside)


@triton.jit
def head_backward(of_out, workspace, weights, H: tl.constexpr, Z: tl.constexpr, early: tl.constexpr):
    """The gradient of `out` -> of the last plane, and each sample's share of the reversible norm's."""
    follow(early)
    OUTPUTS: tl.constexpr = Z.outputs
    CHUNK: tl.constexpr = Z.chunk
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    t = tl.arange(0, Z.horizon_tile)
    h = tl.arange(0, Z.hidden_tile)
    k = tl.arange(0, Z.columns_tile)
    of_plane = zeros(Z.horizon_tile, Z.hidden_tile)
    sums = zeros(Z.columns_tile, Z.chunk)
    products = zeros(Z.columns_tile, Z.chunk)
    for first in range(0, OUTPUTS, CHUNK):
        n = first + tl.arange(0, Z.chunk)
        inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
        pointers = of_out + sample * (Z.horizon * Z.outputs) + t[:, None] * Z.outputs + n[None, :]
        slope, _ = slope_and_level(record, weights, n, H, Z)
        of_forecast = tl.load(pointers, mask=inside, other=0.0) * slope[None, :]
        tl.store(record + H.of_forecast + t[:, None] * H.forecast_row + n[None, :], of_forecast, mask=inside)
        forecast = tl.load(record + H.forecast + t[:, None] * H.forecast_row + n[None, :], mask=inside, other=0.0)
        belongs = (n // Z.levels)[None, :] == k[:, None]
        sums += tl.where(belongs, tl.sum(of_forecast, axis=0)[None, :], 0.0)
        products += tl.where(belongs, tl.sum(of_forecast * forecast, axis=0)[None, :], 0.0)
        weight = tl.load(
            weights.linear + n[:, None] * Z.hidden + h[None, :],
            mask=(n < Z.outputs)[:, None] & (h < Z.hidden)[None, :],
            other=0.0,
        )
        of_plane = exact_dot(of_forecast, weight, of_plane, Z)
    store_plane(record + H.of_plane, Z.hidden, of_plane, Z)
    leave_norms_share(record, weights, sums, products, H, Z)


@triton.jit(do_not_specialize=["n_windows"])
def head_train(
    target,
    quantiles,
    tally,
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
    """`head_forward`, the quantile loss against target (B, horizon, targets), and `head_backward`, for a forecast
    that nothing else wants: to the gradient of the last plane, and each sample's share of the reversible norm's.

    quantiles (levels,); tally (B,) of float64 gets the sum of each sample's losses, done the number of windows; each
    number's loss weighs `share`. FEATURES: of the plane, summed over at once on the way forward.
    """
    follow(early)
    HIDDEN: tl.constexpr = Z.hidden
    OUTPUTS: tl.constexpr = Z.outputs
    CHUNK: tl.constexpr = Z.chunk
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    target += sample * (Z.horizon * Z.targets)
    t = tl.arange(0, Z.horizon_tile)
    h = tl.arange(0, Z.hidden_tile)
    k = tl.arange(0, Z.columns_tile)
    of_plane = zeros(Z.horizon_tile, Z.hidden_tile)
    sums = zeros(Z.columns_tile, Z.chunk)
    products = zeros(Z.columns_tile, Z.chunk)
    losses = zeros(Z.horizon_tile, Z.chunk)
    for first in range(0, OUTPUTS, CHUNK):
        n = first + tl.arange(0, Z.chunk)
        inside = (t < Z.horizon)[:, None] & (n < Z.outputs)[None, :]
        forecast = zeros(Z.horizon_tile, Z.chunk)
        for start in range(0, HIDDEN, FEATURES):
            f = start + tl.arange(0, FEATURES)
            left = tl.load(
                record + H.plane + t[:, None] * Z.hidden + f[None, :],
                mask=(t < Z.horizon)[:, None] & (f < Z.hidden)[None, :],
                other=0.0,
            )
            right = weight_tile(weights.linear, f, n, Z.hidden, Z.outputs, 1, Z.hidden)
            forecast = exact_dot(left, right, forecast, Z)
        forecast += tl.load(weights.linear_bias + n, mask=n < Z.outputs, other=0.0)[None, :]
        slope, base = slope_and_level(record, weights, n, H, Z)
        error = tl.load(target + t[:, None] * Z.targets + (n // Z.levels)[None, :], mask=inside, other=0.0)
        error -= forecast * slope[None, :] + base[None, :]
        level = tl.load(quantiles + n % Z.levels, mask=n < Z.outputs, other=0.0)[None, :]
        along = tl.where(error < 0, 1 - level, -level)
        losses += tl.where(inside, -along * error, 0.0)
        of_forecast = tl.where(inside, along * share, 0.0) * slope[None, :]
        tl.store(record + H.of_forecast + t[:, None] * H.forecast_row + n[None, :], of_forecast, mask=inside)
        belongs = (n // Z.levels)[None, :] == k[:, None]
        sums += tl.where(belongs, tl.sum(of_forecast, axis=0)[None, :], 0.0)
        products += tl.where(belongs, tl.sum(of_forecast * forecast, axis=0)[None, :], 0.0)
        weight = weight_tile(weights.linear, n, h, Z.outputs, Z.hidden, Z.hidden, 1)
        of_plane = exact_dot(of_forecast, weight, of_plane, Z)
    store_plane(record + H.of_plane, Z.hidden, of_plane, Z)
    leave_norms_share(record, weights, sums, products, H, Z)
    tl.store(tally + sample, tl.load(tally + sample) + tl.sum(losses).to(tl.float64))
    if tl.program_id(0) == 0:
        tl.store(done, tl.load(done) + n_windows)
