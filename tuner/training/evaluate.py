"""How good a trained network's forecasts are, in the units the data came in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuner.config import Objective
from tuner.data.prepare import TestWindows, blocks_of
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.files.plain import in_json
from tuner.models.fault import out_of_memory
from tuner.training.batching import batches
from tuner.training.clock import exact_fp32
from tuner.training.engines.captured import VALIDATION_BATCH
from tuner.training.quantile_loss import (
    crosses,
    forecasts_of,
    mean_quantile_loss_per_column,
    mean_quantile_loss_per_window,
    rearranged,
    symmetric_pairs,
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
    test_runs: tuple[float, ...] = ()
    """MQL of the objective's windows, in runs of consecutive ones: how much two forecasts differ
    from run to run says how sure it is that one is better. In the order of time."""
    val_runs: tuple[float, ...] = ()

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

    >>> from tuner import load_data, load_model
    >>> evaluation = evaluate(load_model("model.safetensors").model, load_data("task.toml"))
    >>> 0 < evaluation.test_mql_mean < 10
    True
    """
    with _evaluating(model):
        means: list[Tensor] = []
        kept: list[tuple[DeviceSplit, Tensor, Tensor]] = []
        for split, chosen in _parts(data, windows):
            losses = _window_losses(model, data, split, chosen, make_room)
            means += _means(losses, data, split.series_index[chosen])
            kept.append((split, chosen, losses[:, 0]))
        found = torch.stack(means).tolist()
    n = len(data.series) + 1 + data.shapes.n_targets
    parts = [found[first : first + n] for first in range(0, len(found), n)]
    scores = [_block_scores(data, part) for part in parts]
    whole = _evaluation(data, scores[:-1], scores[-1], windows)
    return replace(whole, test_runs=_in_runs(data, kept[:-1]), val_runs=_in_runs(data, kept[-1:]))


MOST_RUNS, LEAST_RUNS = 20, 4
"""Of consecutive windows; with fewer runs, the windows of several series are parted by series."""


def _in_runs(
    data: DeviceData, parts: Sequence[tuple[DeviceSplit, Tensor, Tensor]]
) -> tuple[float, ...]:
    """Means over runs of the objective's windows. Of split, numbers of windows and their losses."""
    starts, series, losses = (
        torch.cat(each).cpu().numpy()
        for each in zip(
            *((split.starts[n], split.series_index[n], lost) for split, n, lost in parts),
            strict=True,
        )
    )
    if data.task.objective_series is not None:
        mine = series == data.series.index(data.task.objective_series)
        starts, series, losses = starts[mine], series[mine], losses[mine]
    return run_means(run_numbers(data, starts, series), losses) if len(losses) else ()


def run_means(run: npt.NDArray[np.int64], losses: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Of losses (N,), by the numbers of their runs, (N,), those that there are."""
    numbers = np.bincount(run)
    return tuple((np.bincount(run, losses)[numbers > 0] / numbers[numbers > 0]).tolist())


def run_numbers(
    data: DeviceData, starts: npt.NDArray[np.int64], series: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The number of each window's run, (N,), in the order of time, of windows' first rows and
    series. Runs are two horizons long at least, so that the errors of one say little of the next.
    """
    first = np.full(len(data.series), np.iinfo(np.int64).max)
    last = np.zeros(len(data.series), dtype=np.int64)
    np.minimum.at(first, series, starts)
    np.maximum.at(last, series, starts)
    there = np.unique(series)
    spans = last - first + data.shapes.horizon
    count = min(MOST_RUNS, int(np.median(spans[there])) // (2 * data.shapes.horizon))
    run = (starts - first[series]) * max(count, 1) // spans[series]
    if count < LEAST_RUNS <= len(there):
        run = np.searchsorted(there, series) * min(MOST_RUNS, len(there)) // len(there)
    return np.asarray(run)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode, products in fp32, without gradients; then in the mode it came in."""
    was_training = model.training
    model.eval()
    try:
        with exact_fp32(), torch.no_grad():
            yield
    finally:
        model.train(was_training)


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
    model: nn.Module, data: DeviceData, split: DeviceSplit, chosen: Tensor, size: int
) -> Tensor:
    device, losses = data.minimum.device, []
    places = torch.tensor(data.task.eval_index, device=device)
    levels = torch.tensor(data.task.eval_quantiles, device=device, dtype=torch.float64)
    parts = list(batches(chosen, size))
    with split.reading_ahead(parts):
        for index in parts:
            prediction, target = forecasts_of(model, data, split, index, places)
            series = split.series_index[index]
            columns = mean_quantile_loss_per_column(prediction, target, levels)
            unit = data.change[series] if data.task.objective is Objective.SCALED else None
            whole = mean_quantile_loss_per_window(prediction, target, levels, unit)
            losses.append(torch.cat([whole.unsqueeze(1), columns], dim=1))
    return torch.cat(losses) if losses else levels.new_zeros(0, 1 + data.shapes.n_targets)


def _means(losses: Tensor, data: DeviceData, series_index: Tensor) -> list[Tensor]:
    """Of each series, then of all windows, then of each column: scalars."""
    whole = losses[:, 0].contiguous()
    means = [whole[series_index == position].mean() for position in range(len(data.series))]
    return [*means, whole.mean(), *losses[:, 1:].mean(dim=0)]


# What forecasts are on the test split beyond their loss: how often their quantiles cross, what
# sorting them changes, and how good their intervals are.


AT_ONCE = 128
"""Windows per pass: all levels of each are held in float64, several times over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Coverage, from 0 to 1, and mean width, in original units."""

    coverage: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalQuality:
    """The interval between two levels: over all rows, and by target column."""

    levels: tuple[float, float]
    overall: Measured
    by_column: Mapping[str, Measured]

    @property
    def nominal(self) -> float:
        """The share of targets that should lie in it."""
        return round(self.levels[1] - self.levels[0], 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastQuality:
    """Of all test windows; the MQL of sorted rows at the task's `eval_quantiles`, by series name
    and over all.
    """

    rows: int
    crossed: float
    """Share of rows that crossed before they were sorted."""
    sorted_mql: Mapping[str, float]
    sorted_mql_mean: float
    intervals: tuple[IntervalQuality, ...]
    """From the widest to the narrowest."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            **in_json(self, "rows", "crossed", sorted_test_mql="sorted_mql"),
            "sorted_test_mql_mean": self.sorted_mql_mean,
            "intervals": [
                {
                    **in_json(each, "levels", "nominal"),
                    **asdict(each.overall),
                    "by_column": {name: asdict(found) for name, found in each.by_column.items()},
                }
                for each in self.intervals
            ],
        }


def forecast_quality(model: nn.Module, data: DeviceData) -> ForecastQuality:
    """Forecasts every test window (one a day), at all trained levels, and measures.

    Args:
        model: (B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q), on scaled values. On the data's
            device; used in evaluation mode, left in the mode it came in.
        data: windows on their device.

    Raises:
        torch.OutOfMemoryError: `AT_ONCE` windows at once are too many.
    """
    with _evaluating(model):
        return _Sums(data).over_all(model)


class _Sums:
    """What is added up over passes, by target column: (C,) and, by pair, (K, C)."""

    def __init__(self, data: DeviceData) -> None:
        task, device = data.task, data.minimum.device
        self.data = data
        self.pairs = symmetric_pairs(task.quantiles)
        self.places = torch.arange(len(task.quantiles), device=device)
        self.scored = torch.tensor(task.eval_index, device=device)
        self.levels = torch.tensor(task.eval_quantiles, device=device, dtype=torch.float64)
        columns = len(task.target_columns)
        self.crossed = torch.zeros(columns, device=device, dtype=torch.float64)
        self.covered = torch.zeros(len(self.pairs), columns, device=device, dtype=torch.float64)
        self.widths = torch.zeros_like(self.covered)
        self.losses: list[Tensor] = []
        self.scaled = task.objective is Objective.SCALED

    def over_all(self, model: nn.Module) -> ForecastQuality:
        """The measures of all test windows."""
        split = self.data.test
        for index in batches(torch.arange(len(split), device=self.places.device), AT_ONCE):
            series = split.series_index[index]
            unit = self.data.change[series] if self.scaled else None
            self._add(*forecasts_of(model, self.data, split, index, self.places), unit)
        return self._quality()

    def _add(self, forecast: Tensor, target: Tensor, unit: Tensor | None) -> None:
        self.crossed += crosses(forecast).sum(dim=(0, 1))
        ordered = rearranged(forecast)  # (B, T, C, Q)
        for number, (low, high) in enumerate(self.pairs):
            lower, upper = ordered[..., low], ordered[..., high]
            self.covered[number] += ((lower <= target) & (target <= upper)).sum(dim=(0, 1))
            self.widths[number] += (upper - lower).sum(dim=(0, 1))
        scored = ordered[..., self.scored]
        self.losses.append(mean_quantile_loss_per_window(scored, target, self.levels, unit))

    def _quality(self) -> ForecastQuality:
        data, losses = self.data, torch.cat(self.losses)
        rows_each = len(data.test) * data.shapes.horizon  # of one target column
        rows = rows_each * data.shapes.n_targets
        coverage, width = (sums / rows_each for sums in (self.covered, self.widths))
        return ForecastQuality(
            rows=rows,
            crossed=float(self.crossed.sum()) / rows,
            sorted_mql={
                name: float(losses[data.test.series_index == position].mean())
                for position, name in enumerate(data.series)
            },
            sorted_mql_mean=float(losses.mean()),
            intervals=tuple(
                self._interval(pair, coverage[number], width[number])
                for number, pair in enumerate(self.pairs)
            ),
        )

    def _interval(self, pair: tuple[int, int], coverage: Tensor, width: Tensor) -> IntervalQuality:
        task = self.data.task
        columns = zip(task.target_columns, coverage.tolist(), width.tolist(), strict=True)
        return IntervalQuality(
            levels=(task.quantiles[pair[0]], task.quantiles[pair[1]]),
            overall=Measured(coverage=float(coverage.mean()), width=float(width.mean())),
            by_column={name: Measured(coverage=c, width=w) for name, c, w in columns},
        )
