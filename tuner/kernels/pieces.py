"""What the kernels are made of: products, norms, dropout and their gradients, on one sample.

A plane is (horizon, features), padded to a tile of powers of two; rows beyond the horizon and
features beyond the width hold rubbish or zeros and are never stored. Written with one program per
sample in mind.

Legend of the network's kernels, here and in `block`, `ends` and `weight_gradients`. Capitals are
known when a kernel is compiled. Importing any of them imports Triton.

Shapes are in words, as the fields of `plan.Sizes` are: B samples of a batch, `length` input
hours, `horizon` hours ahead, `columns` = targets + past + future covariates of a window, `hidden`
features, `outputs` = targets x levels of an hour, `static` and `future` covariates. A name with
`_tile` is a power of two that holds the size. Of a plane, (horizon, features), a tile is worked on;
what lies beyond the plane is never stored.

    Z   `Sizes`
    Y   the `Sizes` that time mixing is compiled for: `hidden` are the features mixed at once
    E   `EntryFields`: where a record keeps what the entry needs
    B   `BlockFields`, in the same way
    H   `HeadFields`
    F   `MixingFields` of a feature mixing; G: of the static mixing, where a kernel has both
    K   inputs of a product, N its outputs; ALONG_K, ALONG_N: how far apart they are in a weight
    t   hours ahead; k, f: inputs or features; n, o: outputs; s: static covariates
    early   the kernel starts before the one before has ended (see `chain`)

Pointers, to float32 where nothing else is said:

    workspace   (B, Z.record); `record` is one sample's row of it, and fields are offsets in it
    masks       (B, Z.mask_record), bytes, 1 where an element is kept; `mask_record`: one sample's
    past        (B, length, columns); future (B, horizon, future); static (B, static)
    out         (B, horizon, outputs)
    weights, time, features, static_mixing, past_mixing, future_mixing, mixing, norm
                named tuples of pointers to parameters: `plan` has their shapes
    scale_at    (): `scale`, what a kept element is multiplied by, 1 / (1 - dropout); in memory, as
                the same captured step serves trainings of other rates

Names: `grad_x` is the gradient of the loss along x, `normed` is normalised and not yet multiplied
by the norm's weight, `inverse` is 1 / deviation, (horizon,), `first` the first feature of a slice,
and X_ROW or `row` how far the rows of a plane in memory are apart.
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


# The masks of all dropouts of a step, in one launch: bytes, 1 where an element is kept.


PER_DRAW = tl.constexpr(8)
"""A draw of Philox gives four words of 32 bits, and an element takes 16 of them."""


@triton.jit(do_not_specialize=["n"])
def draw_masks(masks, state, n, n_dropped, BLOCK: tl.constexpr, early: tl.constexpr):
    """Keep an element where its 16 bits are at least `n_dropped`.

    `state` holds the seed and the number of the draw.
    """
    follow(early)
    draw_some(masks, state, tl.program_id(0), n, n_dropped, BLOCK)


@triton.jit
def draw_some(masks, state, program, n, n_dropped, BLOCK: tl.constexpr):
    """One program's share."""
    counter = program * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(state)
    draw = tl.load(state + 1)
    below = tl.load(n_dropped)
    zero = counter * 0
    low = zero + (draw & 0x7FFFFFFF).to(tl.int32)
    high = zero + (draw >> 31).to(tl.int32)
    a, b, c, d = tl.philox(seed, counter, low, high, zero)
    # Records are that wide: this tells the compiler that bytes go in words.
    n = n // 16 * 16
    first = program.to(tl.int64) * (BLOCK * PER_DRAW) + tl.arange(0, BLOCK)
    _keep(masks, first, a & 0xFFFF, n, below)
    _keep(masks, first + BLOCK, a >> 16, n, below)
    _keep(masks, first + 2 * BLOCK, b & 0xFFFF, n, below)
    _keep(masks, first + 3 * BLOCK, b >> 16, n, below)
    _keep(masks, first + 4 * BLOCK, c & 0xFFFF, n, below)
    _keep(masks, first + 5 * BLOCK, c >> 16, n, below)
    _keep(masks, first + 6 * BLOCK, d & 0xFFFF, n, below)
    _keep(masks, first + 7 * BLOCK, d >> 16, n, below)


@triton.jit
def _keep(masks, element, bits, n, below):
    kept = (bits & 0xFFFF).to(tl.int32) >= below
    tl.store(masks + element, kept.to(tl.uint8), mask=element < n)


# Feature mixing and its gradient: products over the features of planes, in chunks, from memory.


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
    Z: tl.constexpr,
):
    """(horizon, K) in memory at `x` times the weight, (K, N): summed over K in chunks."""
    t = tl.arange(0, Z.horizon_tile)
    n = tl.arange(0, BLOCK_N)
    total = zeros(Z.horizon_tile, BLOCK_N)
    for start in range(0, K, Z.chunk):
        k = start + tl.arange(0, Z.chunk)
        inside = (t < Z.horizon)[:, None] & (k < K)[None, :]
        left = tl.load(x + t[:, None] * X_ROW + k[None, :], mask=inside, other=0.0)
        right = weight_tile(weight, k, n, K, N, ALONG_K, ALONG_N)
        total = exact_dot(left, right, total, Z)
    return total


@triton.jit
def hidden_product(stored, weight, ALONG_K: tl.constexpr, ALONG_N: tl.constexpr, Z: tl.constexpr):
    """A plane of `hidden` features, as it was just stored, times a square weight."""
    tl.debug_barrier()
    return product(stored, Z.hidden, weight, Z.hidden, Z.hidden, ALONG_K, ALONG_N, Z.hidden_tile, Z)


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
        inside = (t < Z.horizon)[:, None] & (k < N_IN)[None, :]
        left = tl.load(x + t[:, None] * X_ROW + k[None, :], mask=inside, other=0.0)
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
