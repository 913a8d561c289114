"""neuralforecast's quantile loss for the classes whose forecasts it reads in the wrong order.

See `tuner.models.of_neuralforecast.library_source`.
"""

from __future__ import annotations

from neuralforecast.losses.pytorch import MQLoss
from torch import Tensor


class QuantilesFirstMQLoss(MQLoss):  # type: ignore[misc]
    """`MQLoss` of forecasts that hold one quantile of all series, then the next."""

    def domain_map(self, y_hat: Tensor) -> Tensor:
        """(B, h, Q * N) to (B, h, N, Q)."""
        quantiles = self.outputsize_multiplier
        return y_hat.reshape(*y_hat.shape[:2], quantiles, -1).transpose(-1, -2)
