"""What a network forecasts for windows of a split, and the quantile losses of forecasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tuner.data.windows import DeviceData, DeviceSplit
from tuner.errors import UsageError


def pinball(prediction: Tensor, target: Tensor, quantiles: Tensor) -> Tensor:
    """The quantile (pinball) loss of every value: max((q - 1) e, q e) with e = target - prediction.

    Args:
        prediction: (B, T, C, Q), forecast quantiles.
        target: (B, T, C), what happened.
        quantiles: (Q,), levels in (0, 1), on the device and in the precision of the prediction.

    Returns:
        (B, T, C, Q), zero or more, in the units of the target.

    Source: Koenker and Bassett, "Regression Quantiles", Econometrica 46 (1978).
    """
    error = target.unsqueeze(-1) - prediction
    return torch.maximum((quantiles - 1) * error, quantiles * error)


def quantile_loss(prediction: Tensor, target: Tensor, quantiles: Tensor) -> Tensor:
    """The protocol's training and validation loss: `pinball` summed over levels, else averaged.

    Where a forecast meets the target exactly, its gradient is that from below.

    Args:
        prediction: (B, T, C, Q), scaled values.
        target: (B, T, C), scaled values.
        quantiles: (Q,), on the device and in the precision of the prediction.

    Returns:
        A scalar tensor, in scaled units.

    Source: the protocol, whose loss is that of darts' `QuantileRegression`.
    """
    loss: Tensor = _QuantileLoss.apply(prediction, target, quantiles)  # type: ignore[no-untyped-call]
    return loss


class _QuantileLoss(torch.autograd.Function):
    """The loss is minus its slope times the error, and the slope is the gradient: kept at once."""

    @staticmethod
    def forward(ctx: Any, prediction: Tensor, target: Tensor, quantiles: Tensor) -> Tensor:
        ctx.n_values = target.numel()
        if not prediction.is_cuda:
            excess = prediction - target.unsqueeze(-1)
            # 1 where the forecast is above the target, in one vectorised pass: `where` takes
            # thirty times as long.
            above = torch.ops.aten.threshold_backward(
                excess.new_ones(()).expand_as(excess), excess, 0
            )
            slope = above.sub_(quantiles)  # of the loss, along the prediction
            ctx.save_for_backward(slope)
            return torch.dot(slope.reshape(-1), excess.reshape(-1)) / target.numel()
        error = target.unsqueeze(-1) - prediction
        slope = torch.where(error < 0, 1 - quantiles, -quantiles)
        ctx.save_for_backward(slope)
        return -torch.dot(slope.reshape(-1), error.reshape(-1)) / target.numel()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * (gradients[0] / ctx.n_values), None, None


def mean_quantile_loss_per_window(
    prediction: Tensor, target: Tensor, quantiles: Tensor, unit: Tensor | None = None
) -> Tensor:
    """The protocol's MQL of each window: 2 `pinball`, averaged over levels, columns and hours.

    The factor 2 makes the median's share equal to the absolute error. Every window has as many
    values as any other, so the mean of these over any set of windows is the MQL of that set.

    Args:
        prediction: (B, T, C, Q), in the units in which the result is wanted.
        target: (B, T, C), same units.
        quantiles: (Q,), those that are scored.
        unit: (B, C), in which each column is measured before columns are averaged; None: as it is.

    Returns:
        (B,), in the units of the target, or without any.

    Source: the protocol, whose MQL is darts' metric `mql`.
    """
    if unit is not None:
        return (mean_quantile_loss_per_column(prediction, target, quantiles) / unit).mean(dim=1)
    return 2 * pinball(prediction, target, quantiles).mean(dim=(1, 2, 3))


def mean_quantile_loss_per_column(prediction: Tensor, target: Tensor, quantiles: Tensor) -> Tensor:
    """The same of each column of each window: 2 `pinball`, averaged over levels and hours.

    Args:
        prediction: (B, T, C, Q), in the units in which the result is wanted.
        target: (B, T, C), same units.
        quantiles: (Q,), those that are scored.

    Returns:
        (B, C), in the units of the target.
    """
    return 2 * pinball(prediction, target, quantiles).mean(dim=(1, 3))


def mean_quantile_loss(prediction: Tensor, target: Tensor, quantiles: Tensor) -> Tensor:
    """The protocol's MQL: `mean_quantile_loss_per_window` averaged over the windows.

    Args:
        prediction: (B, T, C, Q), in the units in which the result is wanted.
        target: (B, T, C), same units.
        quantiles: (Q,).

    Returns:
        A scalar tensor, in the units of the target.
    """
    return mean_quantile_loss_per_window(prediction, target, quantiles).mean()


# What a network forecasts for windows of a split, beside what came, in original units.


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


class OfSeries(nn.Module):
    """Forecasts with parameters of each series: it is told the number of each window's, (B,), as
    the last of what it gets.
    """


def forecast_scaled(
    model: nn.Module, past: Tensor, future: Tensor | None, static: Tensor | None, series: Tensor
) -> Tensor:
    """What a network returns, and what has parameters of each series, (B, T, C, Q), scaled."""
    of_series = (series,) if isinstance(model, OfSeries) else ()
    returned: Tensor = model(past, future, static, *of_series)
    return returned


class Forecasts(NamedTuple):
    """B windows in the units the data came in, float64."""

    values: Tensor
    """(B, T, C, Q), as the network gives them: not sorted; within the task's bounds."""
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
    series = split.series_index[index]
    returned = forecast_scaled(model, batch.past, batch.future, batch.static, series)
    refuse_other_shape(returned, batch.target, len(data.task.quantiles))
    forecast = returned[..., places]
    minimum = data.minimum[series].double().unsqueeze(1)  # (B, 1, C)
    scale = data.scale[series].double().unsqueeze(1)
    values = forecast.double() * scale.unsqueeze(-1) + minimum.unsqueeze(-1)
    if data.task.bounds:
        low, high = (values.new_tensor(each).unsqueeze(-1) for each in data.task.limits)
        values = values.clamp(low, high)
    return Forecasts(values, batch.target.double() * scale + minimum)


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


def symmetric_pairs(levels: Sequence[float]) -> list[tuple[int, int]]:
    """Places of the levels q and 1 - q where both are there, the widest interval first.

    Args:
        levels: ascending.
    """
    return [
        (low, high)
        for low, high in combinations(range(len(levels)), 2)
        if math.isclose(levels[low] + levels[high], 1.0, abs_tol=1e-9)
    ]
