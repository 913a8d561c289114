"""Forecasts that need no network: what a network has to beat before it is worth anything.

A baseline repeats a row of the past, and spreads about it as far as the same forecast was off on
the training windows: the level q of a step ahead is the q-quantile of these errors. Without that
spread it would lose to anything that knows how uncertain it is.

Source: Hyndman and Athanasopoulos, "Forecasting: Principles and Practice" (3rd edition, 2021),
sections 5.2 (naive and seasonal naive) and 5.5 (intervals from the residuals).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuner.data.prepare import TestWindows
from tuner.data.times import season_rows
from tuner.data.windows import DeviceData
from tuner.training.evaluate import Evaluation, evaluate

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
