"""How a kernel follows the one before it: programmatic dependent launch, as CUDA calls it."""

import triton
import triton.language as tl


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
