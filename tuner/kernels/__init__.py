"""Kernels of our own, behind one door: Triton's for a GPU, and C++ for a CPU.

The reference network in a handful of fused kernels, forward and backward (`FusedTSMixer`); the rest
of a training step in few launches (`step_kernels`); how they are launched and compiled ahead; and a
network's elementwise work on a CPU (`host_kernels`).

Nothing here needs Triton before a network is called: machines without it import this package all
the same. `kernel_launch`, `step_kernels` and the kernels themselves import it.
"""

from tuner.kernels.launch_order import PLAIN, Launching, Scoring, why_not_early
from tuner.kernels.network import FusedTSMixer, drops_out, why_not

__all__ = [
    "PLAIN",
    "FusedTSMixer",
    "Launching",
    "Scoring",
    "drops_out",
    "why_not",
    "why_not_early",
]
