"""A training step of one sample, all that needs no other: from its window to what gradients are summed from."""

import triton
import triton.language as tl

from tuner.models.fused.kernels.block import mix_block, unmix_block
from tuner.models.fused.kernels.chain import follow
from tuner.models.fused.kernels.entry import count_draw, enter, enter_back
from tuner.models.fused.kernels.head import score


@triton.constexpr_function
def fields_of(blocks, number):
    """Of one block: known when the kernel is compiled."""
    return blocks[number]


@triton.jit(do_not_specialize=["n_windows"])
def train_sample(
    past,
    future,
    static,
    target,
    quantiles,
    tally,
    done,
    n_windows,
    share,
    workspace,
    masks,
    state,
    weights,
    scale,
    E: tl.constexpr,
    BLOCKS: tl.constexpr,
    N_BLOCKS: tl.constexpr,
    H: tl.constexpr,
    Z: tl.constexpr,
    Y: tl.constexpr,
    FEATURES: tl.constexpr,
    DRAWN: tl.constexpr,
    early: tl.constexpr,
):
    """`enter_forward`, every `block_forward`, `head_train`, every `block_backward`, `enter_backward`, in one program.

    One part leaves in the record what the next one reads, arranged otherwise among the threads: hence the barriers.
    """
    follow(early)
    if DRAWN:
        count_draw(state)
    sample = tl.program_id(0).to(tl.int64)
    record = workspace + sample * Z.record
    mask_record = masks + sample * Z.mask_record
    enter(record, mask_record, past, future, sample, weights.entry, weights.past, weights.future, scale, E, Z)
    for number in tl.static_range(N_BLOCKS):
        tl.debug_barrier()
        one = weights.blocks[number]
        mix_block(
            record,
            mask_record,
            static,
            sample,
            one.static,
            one.time,
            one.features,
            scale,
            fields_of(BLOCKS, number),
            Z,
            Y,
        )
    tl.debug_barrier()
    score(record, target, quantiles, tally, done, n_windows, share, sample, weights.head, H, Z, FEATURES)
    for back in tl.static_range(N_BLOCKS):
        tl.debug_barrier()
        one = weights.blocks[N_BLOCKS - 1 - back]
        unmix_block(
            record, mask_record, one.static, one.time, one.features, scale, fields_of(BLOCKS, N_BLOCKS - 1 - back), Z, Y
        )
    tl.debug_barrier()
    enter_back(record, mask_record, weights.past, weights.future, scale, E, Z)
