"""Gradients of layers' weights and biases: products summed over the samples of each split.

Tables tell what to sum, one row a tile, so that a network of any shape takes one launch. A row has
eleven numbers, int64; places are counted in float32 numbers:

     0  the output's gradient, in a record       6  inputs of the layer
     1  from one of its rows to the next         7  the weight, in a row of `partial`
     2  the input, in a record                   8  the bias, in a row of `partial`
     3  from one of its rows to the next         9  which tile of the outputs this is
     4  rows a sample: 1 or the horizon         10  which tile of the inputs this is
     5  outputs of the layer

`partial` is (splits, numbers of the flat gradient), float32. Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.kernels.pieces import big_part, exact_dot


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
    FEW: tl.constexpr,
    AT_ONCE: tl.constexpr,
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
            row,
            workspace,
            partial,
            n_samples,
            n_numbers,
            Z,
            SAMPLES,
            OUTPUTS,
            FEW,
            AT_ONCE,
            FAR,
            early,
        )
    else:
        sum_tile(
            row,
            workspace,
            partial,
            n_samples,
            n_numbers,
            Z,
            SAMPLES,
            OUTPUTS,
            INPUTS,
            AT_ONCE,
            FAR,
            early,
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
    AT_ONCE: tl.constexpr,
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
