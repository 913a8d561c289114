"""The masks of all dropouts of a step, in one launch: bytes, 1 where an element is kept.

masks       (n,), bytes: the masks of all samples, one after the other
state       (2,), int64: the seed, and how many draws were before
n           elements in all
n_dropped   (), int32: of 2^16 values of an element's 16 bits, how many drop it
BLOCK       draws of a program, PER_DRAW elements each
"""

import triton
import triton.language as tl

from tuner.models.fused.kernels.pieces import follow

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
