"""How good a trained network's forecasts are, in the units the data came in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tuner.data.windows import DeviceData, DeviceSplit
from tuner.training.batching import batches
from tuner.training.determinism import exact_fp32
from tuner.training.engines.captured import VALIDATION_BATCH
from tuner.training.out_of_memory import out_of_memory
from tuner.training.quantile_loss import mean_quantile_loss_per_window

BATCH = 512
"""Windows per forward pass; the result does not depend on it.

On CUDA the least: there a pass of so few is over before the host has launched it, and as many as
fit, up to `VALIDATION_BATCH`, go at once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """MQL (the protocol's mean quantile loss) in original units, by series name and over all."""

    test_mql: Mapping[str, float]
    test_mql_mean: float
    val_mql: Mapping[str, float]
    val_mql_mean: float


def evaluate(
    model: nn.Module, data: DeviceData, *, make_room: Callable[[], bool] | None = None
) -> Evaluation:
    """Forecasts every test window (one a day) and every validation window (stride 1); scores them.

    The quantile levels are the task's `eval_quantiles`, read off the network's outputs; values are
    scaled back per series and column before scoring, in float64. A mean over several series is one
    over their forecasts.

    Args:
        model: (B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q of all trained levels), on scaled
            values. On the data's device; used in evaluation mode, left in the mode it came in.
        data: windows on their device.
        make_room: asked when the device's memory runs out, before fewer windows go at once: gives
            back what can be spared, and says whether that was anything.

    Returns:
        The MQL of either split: NaN where a forecast is no number.

    Raises:
        torch.OutOfMemoryError: `BATCH` windows at once are too many.

    Source: the reference job's protocol; products are computed in fp32 whatever trained the model.
    """
    was_training = model.training
    model.eval()
    try:
        with exact_fp32(), torch.no_grad():
            scored = _scored(data)
            means = [
                *_means(_window_losses(model, data, data.test, scored, make_room), data, data.test),
                *_means(_window_losses(model, data, data.val, scored, make_room), data, data.val),
            ]
            found = torch.stack(means).tolist()
    finally:
        model.train(was_training)
    n = len(data.series)
    (*test, test_mean), (*val, val_mean) = found[: n + 1], found[n + 1 :]
    return Evaluation(
        test_mql=dict(zip(data.series, test, strict=True)),
        test_mql_mean=test_mean,
        val_mql=dict(zip(data.series, val, strict=True)),
        val_mql_mean=val_mean,
    )


class _Scored(NamedTuple):
    """What is scored of a forecast: places of the levels, (E,), and the levels, (E,) float64."""

    places: Tensor
    levels: Tensor


def _scored(data: DeviceData) -> _Scored:
    device = data.minimum.device
    return _Scored(
        torch.tensor(data.task.eval_index, device=device),
        torch.tensor(data.task.eval_quantiles, device=device, dtype=torch.float64),
    )


def _window_losses(
    model: nn.Module,
    data: DeviceData,
    split: DeviceSplit,
    scored: _Scored,
    make_room: Callable[[], bool] | None,
) -> Tensor:
    """(N,), float64: the MQL of each window of the split, in passes as large as memory allows."""
    on_cuda = data.minimum.device.type == "cuda"
    size = max(BATCH, min(VALIDATION_BATCH, len(split))) if on_cuda else BATCH
    while True:
        try:
            return _losses_in_passes(model, data, split, scored, size)
        except Exception as error:
            if not on_cuda or out_of_memory(error) is None:
                raise
            # What others can spare comes first: it must not decide in how many passes this is done.
            if make_room is None or not make_room():
                if size == BATCH:
                    raise
                size = max(BATCH, size // 2)
        # Only out here are the frames of the failed try gone, and with them what it held.
        torch.cuda.empty_cache()


def _losses_in_passes(
    model: nn.Module, data: DeviceData, split: DeviceSplit, scored: _Scored, size: int
) -> Tensor:
    losses = []
    for index in batches(torch.arange(len(split), device=data.minimum.device), size):
        batch = split.gather(index)
        forecast = model(batch.past, batch.future, batch.static)[..., scored.places]
        series = split.series_index[index]
        minimum = data.minimum[series].double().unsqueeze(1)  # (B, 1, C)
        scale = data.scale[series].double().unsqueeze(1)
        prediction = forecast.double() * scale.unsqueeze(-1) + minimum.unsqueeze(-1)
        target = batch.target.double() * scale + minimum
        losses.append(mean_quantile_loss_per_window(prediction, target, scored.levels))
    return torch.cat(losses)


def _means(losses: Tensor, data: DeviceData, split: DeviceSplit) -> list[Tensor]:
    """Of each series, then of all windows: scalars."""
    means = [losses[split.series_index == position].mean() for position in range(len(data.series))]
    return [*means, losses.mean()]
