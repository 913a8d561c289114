"""What a trained network's forecasts are on the test split, beyond their loss: how often their
quantiles cross, what sorting them changes, and how good their intervals are.

A row is a forecast of one series, time and target column: one value for each trained level. It
crosses where a value lies below that of a lower level. All measures but the rate of crossing are of
sorted rows (`tuner.training.quantile_loss`), which is what a saved model forecasts. The protocol's
MQL is of rows as they come. Sorting all trained levels never makes the loss over all of them
larger; over the evaluated ones alone it may, by little.

An interval lies between two trained levels q and 1 - q, and its nominal coverage is 1 - 2 q. Its
empirical coverage is the share of rows with lower <= target <= upper, its width the mean of upper
minus lower in the units of the data. Coverage says whether forecasts are calibrated, width how
sharp they are; neither says much without the other.

Source: Gneiting, Balabdaoui and Raftery, "Probabilistic Forecasts, Calibration and Sharpness",
Journal of the Royal Statistical Society B 69 (2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import Objective
from tuner.data.prepare import TestWindows
from tuner.data.task import symmetric_pairs
from tuner.data.times import season_rows
from tuner.data.windows import DeviceData
from tuner.training.batching import batches
from tuner.training.clock import exact_fp32
from tuner.training.evaluate import Evaluation, evaluate
from tuner.training.quantile_loss import (
    crosses,
    forecasts_of,
    mean_quantile_loss_per_window,
    rearranged,
)

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
            "rows": self.rows,
            "crossed": self.crossed,
            "sorted_test_mql": dict(self.sorted_mql),
            "sorted_test_mql_mean": self.sorted_mql_mean,
            "intervals": [
                {
                    "levels": list(each.levels),
                    "nominal": each.nominal,
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
    was_training = model.training
    model.eval()
    try:
        with exact_fp32(), torch.no_grad():
            return _Sums(data).over_all(model)
    finally:
        model.train(was_training)


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


# Forecasts that need no network: what a network has to beat before it is worth anything.


LAST_VALUE, SEASONAL_NAIVE = "last_value", "seasonal_naive"
WINDOWS = 20_000
"""Training windows at most that errors are taken from, evenly spread."""
ERRORS = 8_000_000
"""Errors at most: what is sorted must fit into memory, and into torch's quantiles."""


class Baseline(nn.Module):
    """Forecasts row `rows[t]` of the past for step t, with `spread` about it."""

    rows: Tensor  # (T,) int64
    spread: Tensor  # (T, C, Q), on scaled values

    def __init__(self, rows: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("spread", spread)

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        """(B, L, C + P + F), and what it does not look at -> (B, T, C, Q)."""
        del future, static
        n_targets = self.spread.shape[1]
        repeated = past[:, self.rows, :n_targets]  # (B, T, C)
        return repeated.unsqueeze(-1) + self.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineScore:
    """What a baseline comes to on the windows that networks are scored on."""

    name: str
    evaluation: Evaluation


def baselines(data: DeviceData) -> dict[str, Baseline]:
    """The baselines of a task by name, on the data's device: the last value, and the value of a
    season ago where the past holds a season.
    """
    length, horizon = data.shapes.input_size, data.shapes.horizon
    steps = torch.arange(horizon, device=data.minimum.device)
    rows = {LAST_VALUE: torch.full_like(steps, length - 1)}
    season = season_rows(data.task.frequency)
    if season is not None and 1 < season <= length:
        rows[SEASONAL_NAIVE] = length - season + steps % season
    return {name: Baseline(each, _spread(data, each)) for name, each in rows.items()}


def score_baselines(
    data: DeviceData, *, windows: TestWindows = TestWindows.ALL
) -> tuple[BaselineScore, ...]:
    """What the baselines come to, as `evaluate` scores a network; worked out once for all runs on
    this data.
    """
    found: tuple[BaselineScore, ...] | None = data.kept.get(windows)
    if found is None:
        found = tuple(
            BaselineScore(name=name, evaluation=evaluate(each, data, windows=windows))
            for name, each in baselines(data).items()
        )
        data.kept[windows] = found
    return found


def _spread(data: DeviceData, rows: Tensor) -> Tensor:
    """(T, C, Q): quantiles of the errors on training windows, of all series together."""
    n_values = data.shapes.horizon * data.shapes.n_targets
    count = min(len(data.train), WINDOWS, max(1, ERRORS // n_values))
    evenly = torch.linspace(0, len(data.train) - 1, count, device=data.minimum.device).long()
    batch = data.train.gather(evenly)
    errors = batch.target - batch.past[:, rows, : data.shapes.n_targets]  # (N, T, C)
    levels = torch.tensor(data.task.quantiles, device=errors.device, dtype=errors.dtype)
    found = torch.quantile(errors.flatten(1), levels, dim=0)  # (Q, T * C)
    return found.T.reshape(*errors.shape[1:], len(levels))
