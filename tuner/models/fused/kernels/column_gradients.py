"""Gradients that are sums of columns: of norms, and of what each sample has left its share of.

Tables tell what to sum, one row a tile, so that a network of any shape takes one launch. A row has
eleven numbers, int64; places are counted in float32 numbers, and -1 is nowhere:

     0  the gradient, in a record                6  the weight, in a row of `partial`
     1  from one of its rows to the next         7  the bias, in a row of `partial`
     2  the normalised plane, in a record        8  from one hour to the next there
     3  from one of its rows to the next         9  from one feature to the next there
     4  columns                                 10  the first column of this tile
     5  columns in an hour

`partial` is (splits, numbers of the flat gradient), float32. Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.chain import follow


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
    """Sum (AT_ONCE, columns) each into the first of SPLITS splits; zeros into the others."""
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
    AT_ONCE: tl.constexpr,
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
    weight = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    bias = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    follow(early)
    for start in range(0, SPLITS * SAMPLES * ROWS, AT_ONCE):
        r = start + tl.arange(0, AT_ONCE)
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
