"""How good a trained network's forecasts are, in the units the data came in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from tuner.config import Objective
from tuner.data.prepare import TestWindows, blocks_of
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.models.fault import out_of_memory
from tuner.training.batching import batches
from tuner.training.clock import exact_fp32
from tuner.training.engines.captured import VALIDATION_BATCH
from tuner.training.quantile_loss import (
    forecasts_of,
    mean_quantile_loss_per_column,
    mean_quantile_loss_per_window,
)

BATCH = 512
"""Windows per forward pass; the result does not depend on it.

On CUDA the least: there a pass of so few is over before the host has launched it, and as many as
fit, up to `VALIDATION_BATCH`, go at once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """MQL (the protocol's mean quantile loss) in original units, by series name and over all; of a
    task with the objective `scaled`, each column's in units of its mean change from row to row.

    Where blocks of the test split were forecast, its figures are means over these blocks.
    """

    test_mql: Mapping[str, float]
    test_mql_mean: float
    val_mql: Mapping[str, float]
    val_mql_mean: float
    test_blocks: Mapping[int, BlockScores] = field(default_factory=dict)
    """By the blocks' numbers, in the order of time; empty where all windows were forecast."""
    test_columns: Mapping[str, float] = field(default_factory=dict)
    """MQL of each target column in original units, over all series; empty where there is one."""
    val_columns: Mapping[str, float] = field(default_factory=dict)

    def of_series(self, name: str | None) -> tuple[float, float]:
        """Test and validation MQL of one series; of None, the means over all forecasts."""
        if name is None:
            return self.test_mql_mean, self.val_mql_mean
        return self.test_mql[name], self.val_mql[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockScores:
    """MQL of one block of the test split, by series name and over all its windows."""

    by_series: Mapping[str, float]
    mean: float
    by_column: Mapping[str, float] = field(default_factory=dict)


def evaluate(
    model: nn.Module,
    data: DeviceData,
    *,
    make_room: Callable[[], bool] | None = None,
    windows: TestWindows = TestWindows.ALL,
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
        windows: those of the test split that are forecast; each of their blocks counts alike.

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
            means: list[Tensor] = []
            for split, chosen in _parts(data, windows):
                losses = _window_losses(model, data, split, chosen, make_room)
                means += _means(losses, data, split.series_index[chosen])
            found = torch.stack(means).tolist()
    finally:
        model.train(was_training)
    n = len(data.series) + 1 + data.shapes.n_targets
    parts = [found[first : first + n] for first in range(0, len(found), n)]
    scores = [_block_scores(data, part) for part in parts]
    return _evaluation(data, scores[:-1], scores[-1], windows)


def _block_scores(data: DeviceData, found: Sequence[float]) -> BlockScores:
    """From the order of `_means`."""
    n_series, columns = len(data.series), data.task.target_columns
    return BlockScores(
        by_series=dict(zip(data.series, found[:n_series], strict=True)),
        mean=found[n_series],
        by_column=dict(zip(columns, found[n_series + 1 :], strict=True)),
    )


def _parts(data: DeviceData, windows: TestWindows) -> list[tuple[DeviceSplit, Tensor]]:
    """What is scored apart, with the numbers of its windows, (N,): the test split or its blocks,
    and last the validation split.
    """
    device = data.minimum.device

    def whole(split: DeviceSplit) -> tuple[DeviceSplit, Tensor]:
        return split, torch.arange(len(split), device=device)

    if windows is TestWindows.ALL:
        return [whole(data.test), whole(data.val)]
    starts, series = (each.cpu().numpy() for each in (data.test.starts, data.test.series_index))
    blocks = blocks_of(starts, series, data.task.horizon)
    found = []
    for number in windows.blocks():
        chosen = torch.from_numpy(np.flatnonzero(blocks == number)).to(device)
        found.append((data.test, chosen))
    return [*found, whole(data.val)]


def _evaluation(
    data: DeviceData, test: Sequence[BlockScores], val: BlockScores, windows: TestWindows
) -> Evaluation:
    """`test` is one for the whole split, or one for each block."""

    def over_blocks(figures: Sequence[float]) -> float:
        return sum(figures) / len(figures)

    columns = data.task.target_columns if data.shapes.n_targets > 1 else ()

    return Evaluation(
        test_mql={
            name: over_blocks([each.by_series[name] for each in test]) for name in data.series
        },
        test_mql_mean=over_blocks([each.mean for each in test]),
        val_mql=val.by_series,
        val_mql_mean=val.mean,
        test_blocks=dict(zip(windows.blocks(), test, strict=True)) if windows.blocks() else {},
        test_columns={
            name: over_blocks([each.by_column[name] for each in test]) for name in columns
        },
        val_columns={name: val.by_column[name] for name in columns},
    )


def _window_losses(
    model: nn.Module,
    data: DeviceData,
    split: DeviceSplit,
    chosen: Tensor,
    make_room: Callable[[], bool] | None,
) -> Tensor:
    """(N, 1 + C), float64: of each chosen window its score, and the MQL of each column; in passes
    as large as memory allows.
    """
    on_cuda = data.minimum.device.type == "cuda"
    size = max(BATCH, min(VALIDATION_BATCH, len(chosen))) if on_cuda else BATCH
    while True:
        try:
            return _losses_in_passes(model, data, split, chosen, size)
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
    model: nn.Module,
    data: DeviceData,
    split: DeviceSplit,
    chosen: Tensor,
    size: int,
) -> Tensor:
    device, losses = data.minimum.device, []
    places = torch.tensor(data.task.eval_index, device=device)
    levels = torch.tensor(data.task.eval_quantiles, device=device, dtype=torch.float64)
    for index in batches(chosen, size):
        prediction, target = forecasts_of(model, data, split, index, places)
        series = split.series_index[index]
        columns = mean_quantile_loss_per_column(prediction, target, levels)
        unit = data.change[series] if data.task.objective is Objective.SCALED else None
        whole = mean_quantile_loss_per_window(prediction, target, levels, unit)
        losses.append(torch.cat([whole.unsqueeze(1), columns], dim=1))
    return torch.cat(losses)


def _means(losses: Tensor, data: DeviceData, series_index: Tensor) -> list[Tensor]:
    """Of each series, then of all windows, then of each column: scalars."""
    whole = losses[:, 0].contiguous()
    means = [whole[series_index == position].mean() for position in range(len(data.series))]
    return [*means, whole.mean(), *losses[:, 1:].mean(dim=0)]
