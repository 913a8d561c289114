"""A whole mixer block and its gradient: one sample a program.

The mixed static covariates join the plane as its last features; then its hours are mixed, then its
features.

Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.kernels.feature_mixing import (
    enter_stored,
    feature_mixing_backward,
    finish_feature_mixing,
    product,
)
from tuner.models.fused.kernels.pieces import (
    load_plane,
    load_vector,
    store_plane,
    zeros,
)
from tuner.models.fused.kernels.time_mixing import (
    time_mixing,
    time_mixing_backward,
)


@triton.jit
def load_static(base, Z: tl.constexpr):
    return load_vector(base, Z.static, Z.static_tile)


@triton.jit
def enter_static(values, weight, bias, Z: tl.constexpr):
    """The first product of a static mixing, (static,) -> (hidden,): few numbers, so a sum."""
    n = tl.arange(0, Z.hidden_tile)[:, None]
    s = tl.arange(0, Z.static_tile)[None, :]
    tile = tl.load(weight + n * Z.static + s, mask=(n < Z.hidden) & (s < Z.static), other=0.0)
    return tl.sum(tile * values[None, :], axis=1) + load_vector(bias, Z.hidden, Z.hidden_tile)


@triton.jit
def mix_static(
    record,
    masks,
    values,
    out,
    mixing,
    F: tl.constexpr,
    OUT_ROW: tl.constexpr,
    scale,
    Z: tl.constexpr,
):
    """A feature mixing of one hour that stands for all: dropout alone tells the hours apart."""
    hours = zeros(Z.horizon_tile, Z.hidden_tile)
    entered = enter_static(values, mixing.enter, mixing.enter_bias, Z)
    lower = mixing.enter + Z.hidden * Z.static
    residual = enter_static(values, lower, mixing.enter_bias + Z.hidden, Z)
    entered = hours + entered[None, :]
    residual = hours + residual[None, :]
    finish_feature_mixing(record, masks, entered, residual, out, mixing, F, OUT_ROW, scale, Z)


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
        values = load_static(static + sample * Z.static, Z)
        s = tl.arange(0, Z.static_tile)
        tl.store(record + B.static + s, values, mask=s < Z.static)
        joined = record + B.plane + (B.width - Z.hidden)
        mix_static(record, mask_record, values, joined, static_mixing, G, B.width, scale, Z)
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
    for first in range(0, WIDTH, HIDDEN):
        grad_mixed = product(
            record + F.grad_entered,
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
