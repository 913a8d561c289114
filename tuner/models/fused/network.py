"""The fused network: a `TSMixer`'s parameters, run through the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.config import Precision
from tuner.models.tsmixer import TSMixer


class FusedTSMixer:
    """Computes what `model` computes, and gives its parameters their gradients. It owns no parameters.

    Whether it drops out is the model's own `training` flag. Masks come from a counter-based generator on the device:
    `random_state`, (2,) int64, holds its seed and how often masks were drawn. A replayed CUDA graph draws fresh ones;
    keep the tensor and write it back in place to go on from a checkpoint.

    Args:
        model: one that `why_not` has nothing against, on its device.
        precision: of the matrix products; FP32 or TF32.
    """

    def __init__(self, model: TSMixer, precision: Precision = Precision.FP32) -> None:
        self.model = model
        self.precision = precision
        device = next(model.parameters()).device
        self.random_state = torch.tensor([torch.initial_seed() % 2**63, 0], dtype=torch.int64, device=device)

    def __call__(self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q), as `TSMixer` has it."""
        forecast: Tensor = self.model(past, future, static)
        return forecast
