"""What a network returns, looked at on every batch: a wrong size would be stretched in silence.

One forecast that stands for all windows of a batch, or for all of its steps, has a loss and a
gradient, too. Sizes are known on the host, so that nothing waits for the device.
"""

from __future__ import annotations

from torch import Tensor

from tuner.errors import UsageError


def refuse_other_shape(forecast: Tensor, target: Tensor, levels: int) -> None:
    """Raises UsageError unless it is (B, T, C, Q).

    Args:
        forecast: what a network returned.
        target: (B, T, C), of the same windows.
        levels: Q, how many quantiles are trained.
    """
    expected = (*target.shape, levels)
    if tuple(forecast.shape) != expected:
        raise UsageError(
            f"the network returned {tuple(forecast.shape)} for a batch of {len(target)}; expected "
            f"(batch, horizon, targets, quantiles) = {expected}"
        )
