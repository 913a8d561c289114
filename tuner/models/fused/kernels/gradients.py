"""The gradients of the parameters, summed over the batch in a fixed order: first within splits of it, then over those.

What to sum is told by tables, one row a tile, so that a network of any shape takes three launches.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.kernels.pieces import big_part, three_dots


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
    """Of a layer's weight: the sum over samples and rows of (gradient of its output) x (its input); of its bias too.

    The rows of all samples are counted on: a program sums those of SAMPLES samples, AT_ONCE in a product,
    whatever sample they are of. Where a sample has one row only, a few programs have them all. A layer with
    FEW inputs or less has tiles that are no wider. FAR: places in the workspace do not fit 32 bits.

    A row of the table: where the two planes lie in a record and how far their rows are apart, rows a sample, 1 or
    the horizon, outputs, inputs, where weight and bias lie in a row of `partial`, and which tile of the weight this is.
    """
    row = table + tl.program_id(0) * 11
    if tl.load(row + 6) <= FEW:
        sum_tile(row, workspace, partial, n_samples, n_numbers, Z, SAMPLES, OUTPUTS, FEW, AT_ONCE, FAR, early)
    else:
        sum_tile(row, workspace, partial, n_samples, n_numbers, Z, SAMPLES, OUTPUTS, INPUTS, AT_ONCE, FAR, early)


@triton.jit
def sum_tile(  # noqa: PLR0915 (one tile, from its table's row to its place)
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
    OFFSET: tl.constexpr = tl.int64 if FAR else tl.int32
    split = tl.program_id(1)
    n_rows = tl.load(row + 4).to(tl.int32)
    n_out = tl.load(row + 5).to(tl.int32)
    n_in = tl.load(row + 6).to(tl.int32)
    o = tl.load(row + 9).to(tl.int32) * OUTPUTS + tl.arange(0, OUTPUTS)
    first_in = tl.load(row + 10).to(tl.int32) * INPUTS
    i = first_in + tl.arange(0, INPUTS)
    # A plane's rows are padded to multiples of 16, and loads that may read what lies there take four numbers at once.
    # It is rubbish, and stays in the rows and columns of the product that are not stored.
    o_read = o < (n_out + 15) // 16 * 16
    i_read = i < (n_in + 15) // 16 * 16
    first = split * (SAMPLES * ROWS)
    n_here = tl.minimum(n_samples * n_rows - first, SAMPLES * ROWS)
    # Row k of a split is k rows from its first one, and further by a jump for every sample that ended between.
    gradient_row = tl.multiple_of(tl.load(row + 1), 16)
    x_row = tl.multiple_of(tl.load(row + 3), 16)
    one = n_rows == 1
    record = workspace + tl.where(one, first, split * SAMPLES).to(tl.int64) * RECORD
    gradient_row = tl.where(one, RECORD, gradient_row).to(OFFSET)
    x_row = tl.where(one, RECORD, x_row).to(OFFSET)
    gradient_jump = tl.where(one, 0, RECORD - ROWS * gradient_row).to(OFFSET)
    x_jump = tl.where(one, 0, RECORD - ROWS * x_row).to(OFFSET)
    gradients = record + tl.multiple_of(tl.load(row), 16) + o
    xs = record + tl.multiple_of(tl.load(row + 2), 16) + i
    total = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    bias = tl.zeros([OUTPUTS, 8], tl.float32)
    ones = tl.full([AT_ONCE, 8], 1.0, tl.float32)
    follow(early)
    if n_here > 0:
        for start in range(0, SAMPLES * ROWS, AT_ONCE):
            k = start + tl.arange(0, AT_ONCE)
            there = k < n_here
            sample = k // ROWS
            gradient_at = k * gradient_row + sample * gradient_jump
            x_at = k * x_row + sample * x_jump
            gradient = tl.load(
                gradients[:, None] + gradient_at[None, :], mask=o_read[:, None] & there[None, :], other=0.0
            )
            x = tl.load(xs[None, :] + x_at[:, None], mask=there[:, None] & i_read[None, :], other=0.0)
            # Tensor cores cut off what they add up, which over many rows is a loss of its own: their sums are short.
            bias += sums_of_rows(gradient, ones)
            if Z.products == "tf32x3":
                total += three_dots(gradient, x)
            else:
                total = tl.dot(gradient, x, total, input_precision=Z.products)
    # Read again, as registers are short in the loop.
    n_out = tl.load(row + 5, volatile=True).to(tl.int32)
    n_in = tl.load(row + 6, volatile=True).to(tl.int32)
    o = tl.load(row + 9, volatile=True).to(tl.int32) * OUTPUTS + tl.arange(0, OUTPUTS)
    first_in = tl.load(row + 10, volatile=True).to(tl.int32) * INPUTS
    i = first_in + tl.arange(0, INPUTS)
    out = partial + split.to(tl.int64) * n_numbers
    inside = (o < n_out)[:, None] & (i < n_in)[None, :]
    tl.store(out + tl.load(row + 7) + o[:, None] * n_in + i[None, :], total, mask=inside)
    tl.store(out + tl.load(row + 8) + o, tl.sum(bias, axis=1) * 0.125, mask=(o < n_out) & (first_in == 0))


@triton.jit
def sums_of_rows(values, ones):
    """As a product: were shared memory read in another way too, rows would lie there badly for both."""
    big = big_part(values)
    sums = tl.dot(values - big, ones, input_precision="tf32")
    return tl.dot(big, ones, sums, input_precision="tf32")


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
    """Of a norm's weight and bias, or of what each sample already has its share of: sums over samples and ROWS of each.

    A row of the table: where the gradient lies in a record and how far its rows are apart, the same of the normalised
    plane (-1: there is none), columns, columns in an hour, where weight and bias lie in a row of `partial` (-1:
    nowhere), how far apart hours and features are there, and the first column of this tile.

    A program sums SPLITS splits at once, SAMPLES each, and leaves zeros for all but the first.

    Four columns from a multiple of four on lie side by side: hours are multiples of 16 wide, or follow without a gap.
    """
    row = table + tl.program_id(0) * 11
    split = tl.program_id(1)
    gradient_row = tl.load(row + 1).to(tl.int32)
    normed = tl.load(row + 2)
    normed_row = tl.load(row + 3).to(tl.int32)
    n_columns = tl.load(row + 4).to(tl.int32)
    width = tl.load(row + 5).to(tl.int32)
    of_weight = tl.load(row + 6)
    of_bias = tl.load(row + 7)
    column = tl.multiple_of(tl.load(row + 10).to(tl.int32), 16) + tl.arange(0, BLOCK)
    hour = column // width
    gradient_jump = tl.max_constancy(tl.multiple_of(hour * (gradient_row - width), 4), 4)
    along_jump = tl.max_constancy(tl.multiple_of(hour * (normed_row - width), 4), 4)
    gradients = workspace + tl.multiple_of(tl.load(row), 16) + (column + gradient_jump)
    alongs = workspace + tl.multiple_of(tl.maximum(normed, 0), 16) + (column + along_jump)
    # As with products, what is read of the padding is not stored.
    read = column < (n_columns + 15) // 16 * 16
    read_along = read & (normed >= 0)
    weight = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    bias = tl.zeros([AT_ONCE, BLOCK], tl.float32)
    follow(early)
    for start in range(0, SPLITS * SAMPLES * ROWS, AT_ONCE):
        r = start + tl.arange(0, AT_ONCE)
        sample = split * (SPLITS * SAMPLES) + r // ROWS
        there = (r < SPLITS * SAMPLES * ROWS) & (sample < n_samples)
        gradient_at = sample.to(tl.int64) * RECORD
        along_at = gradient_at
        if ROWS > 1:
            gradient_at += tl.multiple_of(r % ROWS * gradient_row, 16)
            along_at += tl.multiple_of(r % ROWS * normed_row, 16)
        inside = there[:, None] & read[None, :]
        gradient = tl.load(gradients[None, :] + gradient_at[:, None], mask=inside, other=0.0)
        inside = there[:, None] & read_along[None, :]
        along = tl.load(alongs[None, :] + along_at[:, None], mask=inside, other=0.0)
        weight += gradient * along
        bias += gradient
    out = partial + split.to(tl.int64) * (SPLITS * n_numbers)
    at = hour.to(tl.int64) * tl.load(row + 8) + (column % width).to(tl.int64) * tl.load(row + 9)
    has_weight = (column < n_columns) & (of_weight >= 0)
    has_bias = (column < n_columns) & (of_bias >= 0)
    tl.store(out + of_weight + at, tl.sum(weight, axis=0), mask=has_weight)
    tl.store(out + of_bias + at, tl.sum(bias, axis=0), mask=has_bias)
    for more in tl.static_range(1, SPLITS):
        out += n_numbers
        here = split * SPLITS + more < n_splits
        tl.store(out + of_weight + at, tl.zeros([BLOCK], tl.float32), mask=has_weight & here)
        tl.store(out + of_bias + at, tl.zeros([BLOCK], tl.float32), mask=has_bias & here)


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
    """(splits, numbers) -> (numbers,), for at most SPLITS, and zeros in the gaps between parameters.

    SQUARED: each program leaves the sum of its numbers' squares in `squares`, and `step` is one more.

    `used` tells of each ALIGNED numbers how many, from the first on, are a parameter's.
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
