"""The parameters' gradients, summed over the splits of a batch, in a fixed order.

Within splits they are summed before, by `weight_gradients` and `column_gradients`: so no sum
depends on who comes first. Letters: see kernels/__init__.py.
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.chain import follow


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
