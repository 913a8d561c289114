"""What a network forecasts for windows of a split, beside what came, in original units."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from tuner.data.windows import DeviceData, DeviceSplit
from tuner.training.forecast_shape import refuse_other_shape


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
