"""Gradients of layers' weights and biases: products summed over the samples of each split.

Tables tell what to sum, one row a tile, so that a network of any shape takes one launch. A row has
eleven numbers, int64; places are counted in float32 numbers:

     0  the output's gradient, in a record       6  inputs of the layer
     1  from one of its rows to the next         7  the weight, in a row of `partial`
     2  the input, in a record                   8  the bias, in a row of `partial`
     3  from one of its rows to the next         9  which tile of the outputs this is
     4  rows a sample: 1 or the horizon         10  which tile of the inputs this is
     5  outputs of the layer

`partial` is (splits, numbers of the flat gradient), float32. Letters: see pieces.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.pieces import big_part, exact_dot, follow

FEW = tl.constexpr(16)
"""Inputs of a layer whose tiles are no wider."""
AT_ONCE = tl.constexpr(16)
"""Rows in a product."""


@triton.jit(do_not_specialize=["n_samples"])
def sum_products(
    table,
    workspace,
    partial,
    n_samples,
    n_numbers,
    Z: tl.constexpr,
    SAMPLES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    FAR: tl.constexpr,
    early: tl.constexpr,
):
    """Of a layer's weight and bias: the sum over samples and rows of (output's gradient) x (input).

    The rows of all samples are counted on: a program sums those of SAMPLES samples, AT_ONCE in a
    product, whatever sample they are of. Where a sample has one row only, a few programs have them
    all. A layer with FEW inputs or less has tiles that are no wider. FAR: places in the workspace
    do not fit 32 bits.
    """
    row = table + tl.program_id(0) * 11
    if tl.load(row + 6) <= FEW:
        sum_tile(
            row, workspace, partial, n_samples, n_numbers, Z, SAMPLES, OUTPUTS, FEW, FAR, early
        )
    else:
        sum_tile(
            row, workspace, partial, n_samples, n_numbers, Z, SAMPLES, OUTPUTS, INPUTS, FAR, early
        )


@triton.jit
def rows_in_records(
    record,
    row,
    FIELD: tl.constexpr,
    one,
    RECORD: tl.constexpr,
    ROWS: tl.constexpr,
    FAR: tl.constexpr,
):
    """The first row of the plane at FIELD of a table's row, the step to the next, and a jump.

    Row k of a split is k steps from its first one, and a jump further for every sample between.
    `one`: a sample has one row only.
    """
    OFFSET: tl.constexpr = tl.int64 if FAR else tl.int32
    step = tl.where(one, RECORD, tl.multiple_of(tl.load(row + FIELD + 1), 16)).to(OFFSET)
    jump = tl.where(one, 0, RECORD - ROWS * step).to(OFFSET)
    return record + tl.multiple_of(tl.load(row + FIELD), 16), step, jump


@triton.jit
def store_tile(row, partial, total, bias, n_numbers, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr):
    """The table's row is read again for this: registers are short in the loop before."""
    n_out = tl.load(row + 5, volatile=True).to(tl.int32)
    n_in = tl.load(row + 6, volatile=True).to(tl.int32)
    o = tl.load(row + 9, volatile=True).to(tl.int32) * OUTPUTS + tl.arange(0, OUTPUTS)
    first_in = tl.load(row + 10, volatile=True).to(tl.int32) * INPUTS
    i = first_in + tl.arange(0, INPUTS)
    out = partial + tl.program_id(1).to(tl.int64) * n_numbers
    inside = (o < n_out)[:, None] & (i < n_in)[None, :]
    tl.store(out + tl.load(row + 7) + o[:, None] * n_in + i[None, :], total, mask=inside)
    tl.store(
        out + tl.load(row + 8) + o, tl.sum(bias, axis=1) * 0.125, mask=(o < n_out) & (first_in == 0)
    )


@triton.jit
def sum_tile(
    row,
    workspace,
    partial,
    n_samples,
    n_numbers,
    Z: tl.constexpr,
    SAMPLES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    FAR: tl.constexpr,
    early: tl.constexpr,
):
    """A tile of (OUTPUTS, INPUTS); of the bias where it is the first one of these outputs."""
    RECORD: tl.constexpr = Z.record
    ROWS: tl.constexpr = Z.horizon
    split = tl.program_id(1)
    n_rows = tl.load(row + 4).to(tl.int32)
    n_out = tl.load(row + 5).to(tl.int32)
    n_in = tl.load(row + 6).to(tl.int32)
    o = tl.load(row + 9).to(tl.int32) * OUTPUTS + tl.arange(0, OUTPUTS)
    i = tl.load(row + 10).to(tl.int32) * INPUTS + tl.arange(0, INPUTS)
    # A plane's rows are padded to multiples of 16, and loads that may read the padding take four
    # numbers at once. It is rubbish, and stays in rows and columns of the product not stored.
    o_read = o < (n_out + 15) // 16 * 16
    i_read = i < (n_in + 15) // 16 * 16
    first = split * (SAMPLES * ROWS)
    n_here = tl.minimum(n_samples * n_rows - first, SAMPLES * ROWS)
    one = n_rows == 1
    record = workspace + tl.where(one, first, split * SAMPLES).to(tl.int64) * RECORD
    gradients, gradient_row, gradient_jump = rows_in_records(record, row, 0, one, RECORD, ROWS, FAR)
    xs, x_row, x_jump = rows_in_records(record, row, 2, one, RECORD, ROWS, FAR)
    gradients += o
    xs += i
    total = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    bias = tl.zeros([OUTPUTS, 8], tl.float32)
    ones = tl.full([AT_ONCE, 8], 1.0, tl.float32)
    follow(early)
    if n_here > 0:
        for start in range(0, SAMPLES * ROWS, AT_ONCE):
            k = start + tl.arange(0, AT_ONCE)
            there = k < n_here
            sample = k // ROWS
            at = gradients[:, None] + (k * gradient_row + sample * gradient_jump)[None, :]
            gradient = tl.load(at, mask=o_read[:, None] & there[None, :], other=0.0)
            at = xs[None, :] + (k * x_row + sample * x_jump)[:, None]
            x = tl.load(at, mask=there[:, None] & i_read[None, :], other=0.0)
            # Tensor cores cut off what they add up, a loss over many rows: their sums are short.
            bias += sums_of_rows(gradient, ones)
            total = exact_dot(gradient, x, total, Z)
    store_tile(row, partial, total, bias, n_numbers, OUTPUTS, INPUTS)


@triton.jit
def sums_of_rows(values, ones):
    """As a product: were shared memory read in another way too, rows would lie badly for both."""
    big = big_part(values)
    sums = tl.dot(values - big, ones, input_precision="tf32")
    return tl.dot(big, ones, sums, input_precision="tf32")


# The parameters' gradients, summed over the splits of a batch, in a fixed order.


@triton.jit(do_not_specialize=["n_splits"])
def sum_splits(
    partial,
    gradient,
    used,
    squares,
    step,
    n_numbers,
    n_splits,
    ALIGNED: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    SQUARED: tl.constexpr,
    early: tl.constexpr,
):
    """(splits, numbers) -> gradient (numbers,), with zeros between parameters.

    partial: (n_splits, n_numbers), at most SPLITS of them. used: int32, of each ALIGNED numbers how
    many, from the first on, are a parameter's. squares: (programs,); step: (): with SQUARED, each
    program leaves the sum of its numbers' squares, and `step` is one more.
    """
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < n_numbers
    n_used = tl.load(used + n // ALIGNED, mask=inside, other=0)
    total = tl.zeros([BLOCK], tl.float32)
    follow(early)
    for split in tl.static_range(SPLITS):
        total += tl.load(partial + n, mask=inside & (split < n_splits), other=0.0)
        partial += n_numbers
    total = tl.where(n % ALIGNED < n_used, total, 0.0)
    tl.store(gradient + n, total, mask=inside)
    if SQUARED:
        tl.store(squares + tl.program_id(0), tl.sum(total * total))
        if tl.program_id(0) == 0:
            tl.store(step, tl.load(step) + 1)


# Gradients that are sums of columns: of norms, and of what each sample has left its share of.


@triton.jit
def columns_with_gaps(column, hour, gap):
    """Where columns of a plane lie from its first one on, with a gap after every hour.

    Four columns from a multiple of four on lie side by side: hours are multiples of 16 wide, or
    follow without a gap.
    """
    return column + tl.max_constancy(tl.multiple_of(hour * gap, 4), 4)


@triton.jit
def store_columns(
    partial,
    row,
    column,
    hour,
    width,
    n_columns,
    weight,
    bias,
    n_numbers,
    n_splits,
    SPLITS: tl.constexpr,
):
    """Sum (rows at once, columns) each into the first of SPLITS splits; zeros into the others."""
    first_split = tl.program_id(1) * SPLITS
    out = partial + first_split.to(tl.int64) * n_numbers
    weight_start = tl.load(row + 6)
    bias_start = tl.load(row + 7)
    at = hour.to(tl.int64) * tl.load(row + 8) + (column % width).to(tl.int64) * tl.load(row + 9)
    has_weight = (column < n_columns) & (weight_start >= 0)
    has_bias = (column < n_columns) & (bias_start >= 0)
    tl.store(out + weight_start + at, tl.sum(weight, axis=0), mask=has_weight)
    tl.store(out + bias_start + at, tl.sum(bias, axis=0), mask=has_bias)
    none = tl.zeros([column.shape[0]], tl.float32)
    for more in tl.static_range(1, SPLITS):
        out += n_numbers
        here = first_split + more < n_splits
        tl.store(out + weight_start + at, none, mask=has_weight & here)
        tl.store(out + bias_start + at, none, mask=has_bias & here)


@triton.jit(do_not_specialize=["n_samples", "n_splits"])
def sum_columns(
    table,
    workspace,
    partial,
    n_samples,
    n_numbers,
    n_splits,
    RECORD: tl.constexpr,
    ROWS: tl.constexpr,
    SAMPLES: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS_AT_ONCE: tl.constexpr,
    BLOCK: tl.constexpr,
    early: tl.constexpr,
):
    """Of a norm's weight and bias, or of ready shares: sums over samples and ROWS of each.

    A program sums SPLITS splits at once, SAMPLES each, and leaves zeros for all but the first.
    """
    row = table + tl.program_id(0) * 11
    split = tl.program_id(1)
    gradient_row = tl.load(row + 1).to(tl.int32)
    normed_start = tl.load(row + 2)
    normed_row = tl.load(row + 3).to(tl.int32)
    n_columns = tl.load(row + 4).to(tl.int32)
    width = tl.load(row + 5).to(tl.int32)
    column = tl.multiple_of(tl.load(row + 10).to(tl.int32), 16) + tl.arange(0, BLOCK)
    hour = column // width
    # A hint to the compiler holds where the value is made: not in a function it is given to.
    gradients = workspace + tl.multiple_of(tl.load(row), 16)
    gradients += columns_with_gaps(column, hour, gradient_row - width)
    normed_rows = workspace + tl.multiple_of(tl.maximum(normed_start, 0), 16)
    normed_rows += columns_with_gaps(column, hour, normed_row - width)
    # As with products, what is read of the padding is not stored.
    read = column < (n_columns + 15) // 16 * 16
    read_normed = read & (normed_start >= 0)
    weight = tl.zeros([ROWS_AT_ONCE, BLOCK], tl.float32)
    bias = tl.zeros([ROWS_AT_ONCE, BLOCK], tl.float32)
    follow(early)
    for start in range(0, SPLITS * SAMPLES * ROWS, ROWS_AT_ONCE):
        r = start + tl.arange(0, ROWS_AT_ONCE)
        sample = split * (SPLITS * SAMPLES) + r // ROWS
        there = (r < SPLITS * SAMPLES * ROWS) & (sample < n_samples)
        gradient_at = sample.to(tl.int64) * RECORD
        normed_at = gradient_at
        if ROWS > 1:
            gradient_at += tl.multiple_of(r % ROWS * gradient_row, 16)
            normed_at += tl.multiple_of(r % ROWS * normed_row, 16)
        inside = there[:, None] & read[None, :]
        gradient = tl.load(gradients[None, :] + gradient_at[:, None], mask=inside, other=0.0)
        inside = there[:, None] & read_normed[None, :]
        normed = tl.load(normed_rows[None, :] + normed_at[:, None], mask=inside, other=0.0)
        weight += gradient * normed
        bias += gradient
    store_columns(
        partial, row, column, hour, width, n_columns, weight, bias, n_numbers, n_splits, SPLITS
    )
