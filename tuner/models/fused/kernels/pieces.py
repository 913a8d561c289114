"""What the kernels are made of: products, norms, dropout and their gradients, on one sample.

A plane is (horizon, features), padded to a tile of powers of two; rows beyond the horizon and
features beyond the width hold rubbish or zeros and are never stored. Written with one program per
sample in mind. Letters: see kernels/__init__.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.zeros([ROWS, COLUMNS], tl.float32)


@triton.jit
def zero_vector(N: tl.constexpr):
    return tl.zeros([N], tl.float32)


@triton.jit
def big_part(values):
    """Rounded to the 10 bits of a TF32 product's mantissa; what is not finite shows in the rest."""
    bits = values.to(tl.int32, bitcast=True) + 0x1000
    return (bits & ~0x1FFF).to(tl.float32, bitcast=True)


@triton.jit
def three_dots(left, right):
    """left x right as three TF32 products, without small x small."""
    left_big = big_part(left)
    right_big = big_part(right)
    total = tl.dot(left - left_big, right_big, input_precision="tf32")
    total = tl.dot(left_big, right - right_big, total, input_precision="tf32")
    return tl.dot(left_big, right_big, total, input_precision="tf32")


@triton.jit
def exact_dot(left, right, total, Z: tl.constexpr):
    """total + left x right, in the arithmetic that `Z.products` names.

    `ieee`, `tf32`, or `tf32x3`: three TF32 products without small x small.

    By hand, because Triton's own way also replaces what is no number by 0. Tensor cores cut off
    what does not fit a sum instead of rounding it, so a long one drifts: this product is added to
    `total` outside of them. Z is handed on as a whole: Triton 3.6 takes no text alone.
    """
    if Z.products == "tf32x3":
        total += three_dots(left, right)
    else:
        total = tl.dot(left, right, total, input_precision=Z.products)
    return total


@triton.jit
def tile_of(base, row, n_rows, n_columns, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """Pointers and mask of the tile (BLOCK_ROWS, BLOCK_COLUMNS) whose rows are `row` apart."""
    rows = tl.arange(0, BLOCK_ROWS)[:, None]
    columns = tl.arange(0, BLOCK_COLUMNS)[None, :]
    return base + rows * row + columns, (rows < n_rows) & (columns < n_columns)


@triton.jit
def load_plane(base, row, Z: tl.constexpr):
    """(horizon, hidden) at `base`, zeros beyond."""
    pointers, inside = tile_of(base, row, Z.horizon, Z.hidden, Z.horizon_tile, Z.hidden_tile)
    return tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def store_plane(base, row, plane, Z: tl.constexpr):
    pointers, inside = tile_of(base, row, Z.horizon, Z.hidden, Z.horizon_tile, Z.hidden_tile)
    tl.store(pointers, plane, mask=inside)


@triton.jit
def load_vector(base, N: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    return tl.load(base + n, mask=n < N, other=0.0)


@triton.jit
def weight_tile(weight, k, n, K, N, ALONG_K: tl.constexpr, ALONG_N: tl.constexpr):
    """(len k, len n), where input k meets output n at `weight + k ALONG_K + n ALONG_N`."""
    inside = (k < K)[:, None] & (n < N)[None, :]
    return tl.load(weight + k[:, None] * ALONG_K + n[None, :] * ALONG_N, mask=inside, other=0.0)


@triton.jit
def relu(values):
    """NaN stays NaN, as with torch's: a broken network has to show it in its loss."""
    return tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def mask_tile(mask, row, Z: tl.constexpr):
    """Pointers to a plane's mask, and what lies inside: four bytes a thread, as of four float32."""
    t = tl.arange(0, Z.horizon_tile)[:, None]
    n = tl.arange(0, Z.hidden_tile)[None, :]
    return tl.max_contiguous(mask + (t * row + n), [1, 4]), (t < Z.horizon) & (n < Z.hidden)


@triton.jit
def load_mask(mask, row: tl.constexpr, Z: tl.constexpr):
    """(horizon, hidden) of int32: not 0 where an element is kept.

    Read as words of four bytes where rows are that long: a product of what came from bytes is laid
    out for bytes, at the price of two moves for each of its operands.
    """
    if (row % 4 == 0) and (Z.hidden % 4 == 0):
        t = tl.arange(0, Z.horizon_tile)[:, None]
        w = tl.arange(0, Z.hidden_tile // 4)[None, :]
        at = mask.to(tl.pointer_type(tl.int32)) + (t * (row // 4) + w)
        words = tl.load(at, mask=(t < Z.horizon) & (w < Z.hidden // 4), other=0)
        bits = words[:, :, None] & (
            tl.full([1, 1, 4], 1, tl.int32) << (8 * tl.arange(0, 4))[None, None, :]
        )
        kept = tl.reshape(bits, [Z.horizon_tile, Z.hidden_tile])
    else:
        pointers, inside = mask_tile(mask, row, Z)
        kept = tl.load(pointers, mask=inside, other=0).to(tl.int32)
    return kept


@triton.jit
def drop(values, mask, row: tl.constexpr, scale, Z: tl.constexpr):
    """A plane with what the mask, bytes at `mask`, does not keep set to 0 and the rest scaled."""
    if Z.dropout:
        values = tl.where(load_mask(mask, row, Z) != 0, values * scale, 0.0)
    return values


@triton.jit
def inside_plane(Z: tl.constexpr):
    t = tl.arange(0, Z.horizon_tile)[:, None]
    n = tl.arange(0, Z.hidden_tile)[None, :]
    return (t < Z.horizon) & (n < Z.hidden)


@triton.jit
def over_norm(values, Z: tl.constexpr):
    """The sum over what one statistic of the norm covers, for each hour: its features, or all."""
    if (Z.norm == "plane") or (Z.norm == "plane_channel_first"):
        sums = tl.sum(values) + zero_vector(Z.horizon_tile)
    else:
        sums = tl.sum(values, axis=1)
    return sums


@triton.jit
def covered(N: tl.constexpr, Z: tl.constexpr):
    """How many numbers one statistic covers in a plane of N features, as a float."""
    count: tl.constexpr = N if ((Z.norm == "layer") or (Z.norm == "rms")) else N * Z.horizon
    return count * 1.0


@triton.jit
def moments(plane, Z: tl.constexpr):
    """Mean (0 for the root mean square norm), and the sum of squares about it: for each hour."""
    inside = inside_plane(Z)
    if Z.norm == "rms":
        mean = zero_vector(Z.horizon_tile)
    else:
        mean = over_norm(tl.where(inside, plane, 0.0), Z) / covered(Z.hidden, Z)
    centred = tl.where(inside, plane - mean[:, None], 0.0)
    return mean, over_norm(centred * centred, Z)


@triton.jit
def load_affine(base, first, WIDTH: tl.constexpr, Z: tl.constexpr):
    """The norm's weight or bias for `hidden` features from `first` on, in a plane of WIDTH."""
    t = tl.arange(0, Z.horizon_tile)[:, None]
    n = tl.arange(0, Z.hidden_tile)[None, :]
    inside = (t < Z.horizon) & (n < Z.hidden)
    if Z.norm == "plane":
        pointers = base + t * WIDTH + (first + n)
    elif Z.norm == "plane_channel_first":
        pointers = base + (first + n) * Z.horizon + t
    else:
        pointers = base + (first + n) + t * 0
    return tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def apply_affine(normed, norm, first, WIDTH: tl.constexpr, Z: tl.constexpr):
    """Times the norm's weight, plus its bias where it has one."""
    result = normed * load_affine(norm.weight, first, WIDTH, Z)
    if Z.norm != "rms":
        result += load_affine(norm.bias, first, WIDTH, Z)
    return result


@triton.jit
def normalise(plane, Z: tl.constexpr):
    """A plane of `hidden` features, normalised, not yet scaled, and 1 / deviation, (horizon,)."""
    mean, squares = moments(plane, Z)
    inverse = tl.rsqrt(squares / covered(Z.hidden, Z) + EPS)
    return (plane - mean[:, None]) * inverse[:, None], inverse


@triton.jit
def store_hours(base, values, Z: tl.constexpr):
    t = tl.arange(0, Z.horizon_tile)
    tl.store(base + t, values, mask=t < Z.horizon)


@triton.jit
def before_norm(grad_scaled, normed, inverse, mean_grad, mean_grad_normed, Z: tl.constexpr):
    """The gradient before a norm, from the one after it times its weight, and two means of that."""
    result = grad_scaled - normed * mean_grad_normed[:, None]
    if Z.norm != "rms":
        result -= mean_grad[:, None]
    return result * inverse[:, None]


# How a kernel follows the one before it: programmatic dependent launch, as CUDA calls it.


@triton.jit
def follow(early: tl.constexpr):
    """Wait for the end of the kernel before, then let the one after be set up.

    What stands above this call in a kernel may only read what no kernel of the same step has
    written: tables and weights, and of the optimiser what it alone writes, last of all. Every
    kernel calls it, and so the end of one is that of all before it. The order matters: the kernel
    after is set up only once the kernel before has ended.

    `early` needs a GPU of compute capability 9 or newer; without it nothing is compiled here.
    """
    if early:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
