"""Feature mixing and its gradient: products over the features of planes, in chunks, from memory.

Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.pieces import (
    apply_affine,
    before_norm,
    covered,
    drop,
    exact_dot,
    inside_plane,
    load_affine,
    load_plane,
    load_vector,
    normalise,
    over_norm,
    relu,
    store_hours,
    store_plane,
    weight_tile,
    zeros,
)


@triton.jit
def product(
    x,
    X_ROW: tl.constexpr,
    weight,
    K: tl.constexpr,
    N: tl.constexpr,
    ALONG_K: tl.constexpr,
    ALONG_N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CHUNK: tl.constexpr,
    Z: tl.constexpr,
):
    """(horizon, K) in memory at `x` times the weight, (K, N): summed over K in chunks."""
    t = tl.arange(0, Z.horizon_tile)
    n = tl.arange(0, BLOCK_N)
    total = zeros(Z.horizon_tile, BLOCK_N)
    for start in range(0, K, CHUNK):
        k = start + tl.arange(0, CHUNK)
        inside = (t < Z.horizon)[:, None] & (k < K)[None, :]
        left = tl.load(x + t[:, None] * X_ROW + k[None, :], mask=inside, other=0.0)
        right = weight_tile(weight, k, n, K, N, ALONG_K, ALONG_N)
        total = exact_dot(left, right, total, Z)
    return total


@triton.jit
def hidden_product(stored, weight, ALONG_K: tl.constexpr, ALONG_N: tl.constexpr, Z: tl.constexpr):
    """A plane of `hidden` features, as it was just stored, times a square weight."""
    tl.debug_barrier()
    return product(
        stored, Z.hidden, weight, Z.hidden, Z.hidden, ALONG_K, ALONG_N, Z.hidden_tile, Z.chunk, Z
    )


@triton.jit
def finish_feature_mixing(
    record,
    masks,
    entered,
    residual,
    out,
    mixing,
    F: tl.constexpr,
    OUT_ROW: tl.constexpr,
    scale,
    Z: tl.constexpr,
):
    """A feature mixing after its first product: ReLU, dropout, product, dropout, residual, norm."""
    hidden = drop(relu(entered), masks + F.mask_hidden, Z.hidden, scale, Z)
    store_plane(record + F.hidden, Z.hidden, hidden, Z)
    contracted = hidden_product(record + F.hidden, mixing.contract, 1, Z.hidden, Z)
    contracted += load_vector(mixing.contract_bias, Z.hidden, Z.hidden_tile)[None, :]
    mixed = residual + drop(contracted, masks + F.mask_mixed, Z.hidden, scale, Z)
    normed, inverse = normalise(mixed, Z)
    store_plane(record + F.normed, Z.hidden, normed, Z)
    store_hours(record + F.inverse, inverse, Z)
    store_plane(out, OUT_ROW, apply_affine(normed, mixing, 0, Z.hidden, Z), Z)


@triton.jit
def enter_features(
    x,
    entered,
    residual,
    first,
    mixing,
    K,
    TILE: tl.constexpr,
    N_IN: tl.constexpr,
    PROJECTS: tl.constexpr,
    Z: tl.constexpr,
):
    """Add the share of some inputs, x (horizon, TILE), in a first product and its residual."""
    k = tl.arange(0, TILE)
    n = tl.arange(0, Z.hidden_tile)
    inside = (k < K)[:, None] & (n < Z.hidden)[None, :]
    weight_at = mixing.enter + first + (k[:, None] + n[None, :] * N_IN)
    right = tl.load(weight_at, mask=inside, other=0.0)
    if PROJECTS:
        lower = tl.load(weight_at + Z.hidden * N_IN, mask=inside, other=0.0)
        residual = exact_dot(x, lower, residual, Z)
    return exact_dot(x, right, entered, Z), residual


@triton.jit
def add_enter_bias(entered, residual, mixing, PROJECTS: tl.constexpr, Z: tl.constexpr):
    entered += load_vector(mixing.enter_bias, Z.hidden, Z.hidden_tile)[None, :]
    if PROJECTS:
        residual += load_vector(mixing.enter_bias + Z.hidden, Z.hidden, Z.hidden_tile)[None, :]
    return entered, residual


@triton.jit
def enter_stored(
    x, X_ROW: tl.constexpr, N_IN: tl.constexpr, PROJECTS: tl.constexpr, mixing, Z: tl.constexpr
):
    """The first product of a mixing of (horizon, N_IN) in memory at `x`, and its residual."""
    t = tl.arange(0, Z.horizon_tile)
    entered = zeros(Z.horizon_tile, Z.hidden_tile)
    residual = zeros(Z.horizon_tile, Z.hidden_tile) if PROJECTS else load_plane(x, X_ROW, Z)
    for start in range(0, N_IN, Z.chunk):
        k = start + tl.arange(0, Z.chunk)
        left = tl.load(
            x + t[:, None] * X_ROW + k[None, :],
            mask=(t < Z.horizon)[:, None] & (k < N_IN)[None, :],
            other=0.0,
        )
        entered, residual = enter_features(
            left, entered, residual, start, mixing, N_IN - start, Z.chunk, N_IN, PROJECTS, Z
        )
    return add_enter_bias(entered, residual, mixing, PROJECTS, Z)


@triton.jit
def feature_mixing_backward(
    record, masks, grad_out, mixing, F: tl.constexpr, scale, Z: tl.constexpr
):
    """Back through a feature mixing, from the gradient of its result, 0 beyond the plane.

    Returns the gradients of what its first product gave and of the residual, (horizon, hidden)
    each.
    """
    inside = inside_plane(Z)
    normed = load_plane(record + F.normed, Z.hidden, Z)
    t = tl.arange(0, Z.horizon_tile)
    inverse = tl.load(record + F.inverse + t, mask=t < Z.horizon, other=0.0)
    grad_scaled = grad_out * load_affine(mixing.weight, 0, Z.hidden, Z)
    count = covered(Z.hidden, Z)
    mean_grad_normed = over_norm(grad_scaled * normed, Z) / count
    grad_mixed = before_norm(
        grad_scaled, normed, inverse, over_norm(grad_scaled, Z) / count, mean_grad_normed, Z
    )
    grad_mixed = tl.where(inside, grad_mixed, 0.0)
    grad_contracted = drop(grad_mixed, masks + F.mask_mixed, Z.hidden, scale, Z)
    store_plane(record + F.grad_contracted, Z.hidden, grad_contracted, Z)
    grad_hidden = hidden_product(record + F.grad_contracted, mixing.contract, Z.hidden, 1, Z)
    if Z.dropout:
        grad_hidden = grad_hidden * scale
    # What ReLU cut and what was dropped are both 0 in the hidden plane.
    hidden = load_plane(record + F.hidden, Z.hidden, Z)
    return tl.where(hidden > 0, grad_hidden, 0.0), grad_mixed
