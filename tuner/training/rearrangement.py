"""Quantiles that never cross: each forecast's values in ascending order along its levels.

A network forecasts each level by itself, so the value of a higher level may lie below that of a
lower one. Put in order they are a quantile function again, never farther from the true one in any
Lp norm, and their quantile loss summed over all the levels is never larger, whatever comes.

Source: Chernozhukov, Fernandez-Val and Galichon, "Quantile and Probability Curves Without
Crossing", Econometrica 78 (2010).
"""

from __future__ import annotations

from torch import Tensor


def rearranged(forecast: Tensor) -> Tensor:
    """The forecast with its values sorted along the last axis.

    Args:
        forecast: (..., Q), one value for each level, the levels ascending.

    Returns:
        (..., Q), in the same units; what was in order already, unchanged.
    """
    return forecast.sort(dim=-1).values


def crosses(forecast: Tensor) -> Tensor:
    """Which forecasts have a value below that of a lower level: (..., Q) -> (...), bool."""
    return (forecast.diff(dim=-1) < 0).any(dim=-1)
