"""How good a trained network's forecasts are, in the units the data came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.data.windows import DeviceData, DeviceSplit
from tuner.training.batching import batches
from tuner.training.determinism import exact_fp32
from tuner.training.quantile_loss import mean_quantile_loss_per_window

BATCH = 512
"""Windows per forward pass; the result does not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """MQL (the protocol's mean quantile loss) in original units, by series name and over all."""

    test_mql: Mapping[str, float]
    test_mql_mean: float
    val_mql: Mapping[str, float]
    val_mql_mean: float


def evaluate(model: nn.Module, data: DeviceData) -> Evaluation:
    """Forecasts every test window (one a day) and every validation window (stride 1); scores them.

    The quantile levels are the task's `eval_quantiles`, read off the network's outputs; values are
    scaled back per series and column before scoring, in float64. A mean over several series is one
    over their forecasts.

    Args:
        model: (B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q of all trained levels), on scaled
            values. On the data's device; used in evaluation mode, left in the mode it came in.
        data: windows on their device.

    Returns:
        The MQL of either split: NaN where a forecast is no number.

    Source: the reference job's protocol; products are computed in fp32 whatever trained the model.
    """
    was_training = model.training
    model.eval()
    try:
        with exact_fp32(), torch.no_grad():
            test, test_mean = _by_series(
                _window_losses(model, data, data.test), data.test, data.series
            )
            val, val_mean = _by_series(_window_losses(model, data, data.val), data.val, data.series)
    finally:
        model.train(was_training)
    return Evaluation(test_mql=test, test_mql_mean=test_mean, val_mql=val, val_mql_mean=val_mean)


def _window_losses(model: nn.Module, data: DeviceData, split: DeviceSplit) -> Tensor:
    """(N,), float64: the MQL of each window of the split."""
    device = data.minimum.device
    picked = torch.tensor(data.task.eval_index, device=device)
    levels = torch.tensor(data.task.eval_quantiles, device=device, dtype=torch.float64)
    losses = []
    for index in batches(torch.arange(len(split), device=device), BATCH):
        batch = split.gather(index)
        forecast = model(batch.past, batch.future, batch.static)[..., picked]
        series = split.series_index[index]
        minimum = data.minimum[series].double().unsqueeze(1)  # (B, 1, C)
        scale = data.scale[series].double().unsqueeze(1)
        prediction = forecast.double() * scale.unsqueeze(-1) + minimum.unsqueeze(-1)
        target = batch.target.double() * scale + minimum
        losses.append(mean_quantile_loss_per_window(prediction, target, levels))
    return torch.cat(losses)


def _by_series(
    losses: Tensor, split: DeviceSplit, names: Sequence[str]
) -> tuple[dict[str, float], float]:
    means = torch.stack(
        [losses[split.series_index == position].mean() for position in range(len(names))]
    )
    return dict(zip(names, means.tolist(), strict=True)), float(losses.mean())
