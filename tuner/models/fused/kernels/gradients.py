"""The gradients of the parameters, summed over the batch in a fixed order: first within splits of it, then over those.

What to sum is told by tables, one row a tile, so that a network of any shape takes three launches.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_samples"])
def sum_products(
    table,
    workspace,
    partial,
    n_samples,
    n_parameters,
    PRODUCTS: tl.constexpr,
    RECORD: tl.constexpr,
    ROWS: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of a layer's weight: the sum over samples and rows of (gradient of its output) x (its input); of its bias too.

    A row of the table: where the two planes lie in a record and how far their rows are apart, rows a sample, outputs,
    inputs, where weight and bias lie in a row of `partial`, and which tile of the weight this is.
    """
    row = table + tl.program_id(0) * 11
    split = tl.program_id(1)
    n_rows = tl.load(row + 4)
    n_out = tl.load(row + 5)
    n_in = tl.load(row + 6)
    o = tl.load(row + 9) * BLOCK + tl.arange(0, BLOCK)
    first_in = tl.load(row + 10) * BLOCK
    i = first_in + tl.arange(0, BLOCK)
    r = tl.arange(0, ROWS)
    record = workspace + (split * SAMPLES).to(tl.int64) * RECORD
    gradient_at = tl.multiple_of(tl.load(row), 16) + r[:, None] * tl.multiple_of(tl.load(row + 1), 16) + o[None, :]
    x_at = tl.multiple_of(tl.load(row + 2), 16) + r[:, None] * tl.multiple_of(tl.load(row + 3), 16) + i[None, :]
    gradient_inside = (r < n_rows)[:, None] & (o < n_out)[None, :]
    x_inside = (r < n_rows)[:, None] & (i < n_in)[None, :]
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    bias = tl.zeros([ROWS, BLOCK], tl.float32)
    for sample in range(SAMPLES):
        there = split * SAMPLES + sample < n_samples
        gradient = tl.load(record + gradient_at, mask=gradient_inside & there, other=0.0)
        x = tl.load(record + x_at, mask=x_inside & there, other=0.0)
        total = tl.dot(tl.trans(gradient), x, total, input_precision=PRODUCTS)
        bias += gradient
        record += RECORD
    out = partial + split.to(tl.int64) * n_parameters
    inside = (o < n_out)[:, None] & (i < n_in)[None, :]
    tl.store(out + tl.load(row + 7) + o[:, None] * n_in + i[None, :], total, mask=inside)
    tl.store(out + tl.load(row + 8) + o, tl.sum(bias, axis=0), mask=(o < n_out) & (first_in == 0))


@triton.jit(do_not_specialize=["n_samples"])
def sum_columns(
    table,
    workspace,
    partial,
    n_samples,
    n_parameters,
    RECORD: tl.constexpr,
    ROWS: tl.constexpr,
    SAMPLES: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of a norm's weight and bias, or of what each sample already has its share of: sums over samples and ROWS of each.

    A row of the table: where the gradient lies in a record and how far its rows are apart, the same of the normalised
    plane (-1: there is none), columns, columns in an hour, where weight and bias lie in a row of `partial` (-1:
    nowhere), how far apart hours and features are there, and the first column of this tile.
    """
    row = table + tl.program_id(0) * 11
    split = tl.program_id(1)
    gradient_row = tl.load(row + 1)
    normed = tl.load(row + 2)
    normed_row = tl.load(row + 3)
    n_columns = tl.load(row + 4)
    width = tl.load(row + 5)
    of_weight = tl.load(row + 6)
    of_bias = tl.load(row + 7)
    column = tl.load(row + 10) + tl.arange(0, BLOCK)
    hour = column // width
    feature = column % width
    gradient_at = tl.load(row) + hour * gradient_row + feature
    normed_at = tl.maximum(normed, 0) + hour * normed_row + feature
    weight = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    bias = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    for start in range(0, SAMPLES * ROWS, AT_ONCE):
        r = start + tl.arange(0, AT_ONCE)
        sample = split * SAMPLES + r // ROWS
        t = r % ROWS
        there = (r < SAMPLES * ROWS) & (sample < n_samples)
        inside = there[:, None] & (column < n_columns)[None, :]
        record = workspace + sample.to(tl.int64) * RECORD
        gradient = tl.load((record + t * gradient_row)[:, None] + gradient_at[None, :], mask=inside, other=0.0)
        along = tl.load((record + t * normed_row)[:, None] + normed_at[None, :], mask=inside & (normed >= 0), other=0.0)
        weight += gradient * along
        bias += gradient
    out = partial + split.to(tl.int64) * n_parameters
    at = hour * tl.load(row + 8) + feature * tl.load(row + 9)
    tl.store(out + of_weight + at, tl.sum(weight, axis=0), mask=(column < n_columns) & (of_weight >= 0))
    tl.store(out + of_bias + at, tl.sum(bias, axis=0), mask=(column < n_columns) & (of_bias >= 0))


@triton.jit(do_not_specialize=["n_splits"])
def sum_splits(partial, gradient, n_parameters, n_splits, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """(splits, parameters) -> (parameters,), for at most SPLITS."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < n_parameters
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(partial + n, mask=inside & (split < n_splits), other=0.0)
        partial += n_parameters
    tl.store(gradient + n, total, mask=inside)
