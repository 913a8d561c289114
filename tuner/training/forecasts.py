"""What a network forecasts for windows of a split, beside what came, in original units."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from tuner.data.windows import DeviceData, DeviceSplit
from tuner.errors import UsageError

# What a network returns, looked at on every batch: a wrong size would be stretched in silence.


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


class Forecasts(NamedTuple):
    """B windows in the units the data came in, float64."""

    values: Tensor
    """(B, T, C, Q), as the network gives them: not sorted."""
    target: Tensor
    """(B, T, C), what came."""


def forecasts_of(
    model: nn.Module, data: DeviceData, split: DeviceSplit, index: Tensor, places: Tensor
) -> Forecasts:
    """One pass over the windows with these numbers.

    Args:
        model: on the data's device, in evaluation mode, gradients off.
        data: whose scaling it is.
        split: one of the data's.
        index: (B,), numbers of windows.
        places: (Q,), which of the trained levels are wanted.
    """
    batch = split.gather(index)
    returned = model(batch.past, batch.future, batch.static)
    refuse_other_shape(returned, batch.target, len(data.task.quantiles))
    forecast = returned[..., places]
    series = split.series_index[index]
    minimum = data.minimum[series].double().unsqueeze(1)  # (B, 1, C)
    scale = data.scale[series].double().unsqueeze(1)
    return Forecasts(
        forecast.double() * scale.unsqueeze(-1) + minimum.unsqueeze(-1),
        batch.target.double() * scale + minimum,
    )


# Quantiles that never cross: each forecast's values in ascending order along its levels.


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
