"""The reference network in a handful of fused kernels, forward and backward: the same function.

Nothing here needs Triton before a network is called: machines without it import this package all
the same.
"""

from tuner.models.fused.network import FusedTSMixer
from tuner.models.fused.support import why_not

__all__ = ["FusedTSMixer", "why_not"]
