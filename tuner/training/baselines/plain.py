"""Forecasts that need no network and no library: a value of the past again, or a line through the
last rows. All are scored on the windows of a network, by the function that scores one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuner.data.calendars import season_rows
from tuner.data.prepare import TestWindows
from tuner.data.task import Task
from tuner.data.windows import DeviceData
from tuner.training.evaluate import Evaluation, evaluate
from tuner.training.quantile_loss import OfSeries

Floats = npt.NDArray[np.float64]

LAST_VALUE, SEASONAL_NAIVE, FOUND_SEASON = "last_value", "seasonal_naive", "rows_ago"
LINES = LAST_LAGS, NLINEAR = "last_lags", "nlinear"
WINDOWS = 20_000
"""Training windows at most that errors are taken from, evenly spread."""
ERRORS = 8_000_000
"""Errors at most: what is sorted must fit into memory, and into torch's quantiles."""
TRAINING_ROWS = 2_000
"""Of a series and column at most, the last ones: what parameters are estimated from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How good a baseline is, as `evaluate` scores a network, and how many seconds it took."""

    scores: Evaluation
    fit_s: float
    forecast_s: float


def score_baselines(
    data: DeviceData, *, windows: TestWindows = TestWindows.ALL
) -> Mapping[str, Timed]:
    """What each baseline comes to, by its name: the last value; the value of a season ago, of the
    calendar and of the data, where the past holds one; lines through the past.
    """
    return {name: scored(make, data, windows) for name, make in baselines(data).items()}


def scored(make: Callable[[], nn.Module], data: DeviceData, windows: TestWindows) -> Timed:
    """What one that `make` fits comes to."""
    began = time.perf_counter()
    model = make()
    fitted = time.perf_counter()
    scores = evaluate(model, data, windows=windows)
    return Timed(scores=scores, fit_s=fitted - began, forecast_s=time.perf_counter() - fitted)


def baselines(data: DeviceData) -> dict[str, Callable[[], nn.Module]]:
    """The baselines of a task by name, each to be made on the data's device."""
    training, length, horizon = training_rows(data), data.shapes.input_size, data.shapes.horizon
    by_calendar, in_data = season_rows(data.task.frequency), season_in(training)
    seasons = {LAST_VALUE: 1, SEASONAL_NAIVE: by_calendar}
    if in_data != by_calendar:
        seasons[f"{FOUND_SEASON}_{in_data}"] = in_data
    steps = torch.arange(horizon, device=data.minimum.device)
    found: dict[str, Callable[[], nn.Module]] = {}
    for name, season in seasons.items():
        if season is not None and (season > 1 or name == LAST_VALUE) and season <= length:
            found[name] = functools.partial(_naive, data, length - season + steps % season)
    shortest = min(len(each) for each in training)
    few = len(training) * data.shapes.n_targets <= MOST_LINES
    if few and shortest >= 2 * (horizon + 2 * HELD_BACK):
        for name in LINES:
            found[name] = functools.partial(_best_lines, data, training, name)
    return found


def made_again(model: nn.Module, data: DeviceData) -> nn.Module:
    """The same baseline, of other data of its task: its season stays."""
    if isinstance(model, Baseline):
        return _naive(data, model.rows)
    name = NLINEAR if getattr(model, "from_last", False) else LAST_LAGS
    return _best_lines(data, training_rows(data), name)


def empty(name: str, figures: Mapping[str, Tensor], task: Task, n_series: int) -> nn.Module:
    """One of these names, to take `figures` as its state.

    Raises:
        ValueError: they are no baseline's of this task.
    """
    columns, levels = len(task.target_columns), len(task.quantiles)
    rows, weight = figures.get("rows"), figures.get("weight", torch.empty(0))
    if rows is not None:
        known = rows.dtype == torch.int64 and rows.shape == (task.horizon,)
        if not known or not ((rows >= 0) & (rows < task.input_size)).all():
            raise ValueError(f"the rows of {name} are none of a window's {task.input_size}")
        return Baseline(rows, torch.zeros(task.horizon, columns, levels))
    lags = weight.shape[2] if weight.ndim == 4 else 0  # noqa: PLR2004 - (S, C, p, T)
    if name not in LINES or not 1 <= lags <= task.input_size:
        raise ValueError(f"{name} has no figures of a baseline")
    sizes = (lags, task.horizon), (task.horizon,), (task.horizon, levels)
    weight, offset, spread = (torch.zeros(n_series, columns, *each) for each in sizes)
    return Lines(weight, offset, spread, from_last=name == NLINEAR)


def _naive(data: DeviceData, rows: Tensor) -> Baseline:
    return Baseline(rows, _spread(data, rows))


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


def training_rows(data: DeviceData) -> list[Floats]:
    """Of each series the last rows of its training part that follow each other, (R, C), scaled; of
    one without a training window, none.
    """
    starts, series = (each.cpu().numpy() for each in (data.train.starts, data.train.series_index))
    targets, window = data.train.targets.cpu().numpy(), int(data.train.future_steps[0, -1]) + 1
    found = []
    for number in range(len(data.series)):
        mine = starts[series == number]
        if not len(mine):
            found.append(np.empty((0, targets.shape[1])))
            continue
        broken = np.flatnonzero(np.diff(mine) > 1)
        first = mine[broken[-1] + 1] if len(broken) else mine[0]
        rows = targets[first : mine[-1] + window]
        found.append(rows[-TRAINING_ROWS:].astype(np.float64))
    return found


# The season that the data itself shows: the lag at which rows are most alike.


CLEAR = 0.3
"""An autocorrelation from which on a season is one."""
NEARLY = 0.9
"""Of the highest: the shortest season that comes so near is it; others are its multiples."""
COLUMNS = 64
"""That are looked at, evenly spread over all series."""


def season_in(rows: Sequence[Floats]) -> int | None:
    """Rows of the season of columns, each (R, C); None where they show none.

    >>> season_in([np.sin(np.arange(99) * 2 * np.pi / 11)[:, None]])
    11
    """
    columns = [column for each in rows for column in each.T if np.ptp(column) > 0]
    columns = columns[:: max(1, len(columns) // COLUMNS)]
    lags = min((len(each) for each in columns), default=0) // 3
    if lags < 3:  # noqa: PLR2004 - a peak has two sides
        return None
    alike = np.mean([_autocorrelation(each, lags + 1) for each in columns], axis=0)
    inner = alike[1:-1]
    peaks = np.flatnonzero((inner >= alike[:-2]) & (inner > alike[2:])) + 1  # the lags
    peaks = peaks[(peaks > 1) & (alike[peaks] > CLEAR)]
    if not len(peaks):
        return None
    return int(peaks[alike[peaks] >= NEARLY * alike[peaks].max()][0])


def _autocorrelation(column: Floats, lags: int) -> Floats:
    """Of a column without its straight line, at lags 0 to `lags`."""
    steps = np.arange(len(column))
    level = column - np.polyval(np.polyfit(steps, column, 1), steps)
    size = 2 ** int(np.ceil(np.log2(2 * len(level))))
    power = np.abs(np.fft.rfft(level, size)) ** 2
    found = np.fft.irfft(power)[: lags + 1] / np.arange(len(level), len(level) - lags - 1, -1)
    return np.asarray(found / max(found[0], np.finfo(float).tiny))


# Straight lines through the last rows of a window, by least squares: NLinear's, which looks at all
# of them less the last (Zeng et al., "Are Transformers Effective for Time Series Forecasting?",
# AAAI 2023), and one through as many lags as training rows that it has not seen speak for.


RIDGES = (1e-6, 1e-2, 1.0)
"""What is added to the diagonal, in its own mean."""
HELD_BACK = 4
"""The last fourth of the training rows chooses lags and ridge."""
MOST_LINES = 2_000
"""Of series and columns together: more take minutes, and there are none."""


class Lines(OfSeries):
    """For each series and column a line from the last rows to each step, with `spread` about it."""

    def __init__(self, weight: Tensor, offset: Tensor, spread: Tensor, *, from_last: bool) -> None:
        super().__init__()
        self.register_buffer("weight", weight)  # (S, C, p, T)
        self.register_buffer("offset", offset)  # (S, C, T)
        self.register_buffer("spread", spread)  # (S, C, T, Q)
        self.from_last = from_last

    def forward(self, past: Tensor, future: Any, static: Any, series: Tensor) -> Tensor:
        """(B, L, C + P + F), and what it does not look at, (B,) -> (B, T, C, Q)."""
        del future, static
        weight, offset, spread = (
            getattr(self, each).to(past.dtype) for each in ("weight", "offset", "spread")
        )
        recent = past[:, -weight.shape[2] :, : weight.shape[1]]  # (B, p, C)
        last = recent[:, -1:] if self.from_last else torch.zeros_like(recent[:, -1:])
        found = past.new_empty(len(past), *spread.shape[2:], weight.shape[1])  # (B, T, Q, C)
        for number in set(series.tolist()):
            mine = series == number
            point = torch.einsum("bpc,cpt->btc", (recent - last)[mine], weight[number])
            point = point + offset[number].T + last[mine]
            found[mine] = point.unsqueeze(2) + spread[number].permute(1, 2, 0)
        return found.transpose(2, 3)


def _best_lines(data: DeviceData, rows: Sequence[Floats], name: str) -> Lines:
    """Lines of one of the two kinds, with the lags and the ridge that forecast best what is held
    back.
    """
    length, horizon = data.shapes.input_size, data.shapes.horizon
    shortest, from_last = min(len(each) for each in rows), name == NLINEAR
    grid = [(min(length, shortest // 2), each) for each in RIDGES]
    if not from_last:
        most, season = min(length, shortest // HELD_BACK), season_in(rows) or 1
        lags = {min(each, most) for each in (1, 2, 4, 8, 16, season + 1, most)}
        grid = [(each, RIDGES[0]) for each in sorted(lags)]
    p, ridge = min(grid, key=lambda each: _error(rows, horizon, *each, from_last=from_last))
    return _lines(data, rows, p, ridge, from_last=from_last)


def _lines(
    data: DeviceData, rows: Sequence[Floats], p: int, ridge: float, *, from_last: bool
) -> Lines:
    levels, n_targets, horizon = data.task.quantiles, data.shapes.n_targets, data.shapes.horizon
    weight = np.zeros((len(rows), n_targets, p, horizon))
    offset = np.zeros((len(rows), n_targets, horizon))
    spread = np.zeros((len(rows), n_targets, horizon, len(levels)))
    for number, each in enumerate(rows):
        for place, column in enumerate(each.T):
            x, y = _pairs(column, p, horizon, from_last=from_last)
            slope, level = _fitted(x, y, ridge)
            # What was fitted lies nearer than what comes, by about so much.
            wider = np.sqrt(len(x) / max(len(x) - p - 1, len(x) / HELD_BACK))
            errors = (y - x @ slope - level) * wider
            weight[number, place], offset[number, place] = slope, level
            spread[number, place] = np.quantile(errors, levels, axis=0).T
    tensors = (
        torch.from_numpy(each).to(data.minimum.device, data.train.targets.dtype)
        for each in (weight, offset, spread)
    )
    return Lines(*tensors, from_last=from_last)


def _error(rows: Sequence[Floats], horizon: int, p: int, ridge: float, *, from_last: bool) -> float:
    """The mean absolute error on rows held back, of some columns."""
    found = []
    columns = [column for each in rows for column in each.T]
    for column in columns[:: max(1, len(columns) // 8)]:
        x, y = _pairs(column, p, horizon, from_last=from_last)
        seen = len(x) - len(x) // HELD_BACK
        slope, level = _fitted(x[:seen], y[:seen], ridge)
        found.append(np.abs(y[seen:] - x[seen:] @ slope - level).mean())
    return float(np.mean(found))


def _pairs(column: Floats, p: int, horizon: int, *, from_last: bool) -> tuple[Floats, Floats]:
    """What each window has seen, (N, p), and what came, (N, T); less the last value seen."""
    windows = np.lib.stride_tricks.sliding_window_view(column, p + horizon)
    last = windows[:, p - 1 : p] if from_last else 0.0
    return windows[:, :p] - last, windows[:, p:] - last


def _fitted(x: Floats, y: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Slope (p, T) and level (T,) by least squares."""
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    centred = x - mean_x
    gram = centred.T @ centred
    added = ridge * max(float(np.trace(gram)) / len(gram), np.finfo(float).tiny)
    slope = np.linalg.solve(gram + added * np.eye(len(gram)), centred.T @ (y - mean_y))
    return slope, mean_y - mean_x @ slope
