"""Forecasts by libraries: statsforecast's (extra `baselines`) and Chronos (extra `foundation`), as
networks are: they see a window's rows alone, and are scored by the same function.

What is estimated is estimated once, from the last training rows of each series and column. For each
window the library carries it forward over the rows of that window, without another estimate: of
exponential smoothing and of Theta that begins where these rows begin, for the training rows began
at another level, and at another place in the season.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tuner.data.calendars import season_rows
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.training.baselines.plain import Floats, season_in, training_rows
from tuner.training.quantile_loss import OfSeries

STATISTICAL = ("auto_ets", "auto_theta", "mstl", "auto_arima")
"""From the quickest on."""
CHRONOS = "chronos"
LONGEST_SEASON = 24
"""That exponential smoothing takes; MSTL is for longer ones."""
FIRST_ROWS = 10
"""Of a window, whose mean is the level that smoothing begins with, as in the library."""
PROBE_ROWS, PROBE_SEASONS = 60, 4
"""Training rows at least that a first estimate is made of, to see how long the whole will take."""


class ByLibrary(OfSeries):
    """Forecasts of a library, to be set up, estimated, and then called like a network."""

    lacks: tuple[float, ...] = ()
    """Levels that it does not give."""

    def __init__(self, data: DeviceData, name: str) -> None:
        super().__init__()
        self.data, self.name = data, name
        self.n_targets, self.horizon = data.shapes.n_targets, data.shapes.horizon
        self.levels: tuple[float, ...] = data.task.quantiles

    def set_up(self) -> None:
        """Import, load and compile: no part of the time that it takes to fit or to forecast."""
        raise NotImplementedError

    def would_take_s(self, windows: int) -> float:
        """Seconds to fit, and to forecast so many windows, by a part of it."""
        raise NotImplementedError

    def fit(self) -> None:
        """Estimate what is estimated."""

    def of_window(self, past: Floats, series: int) -> Floats:
        """(L, C) in the units of the data -> (T, C, Q)."""
        raise NotImplementedError

    def forward(self, past: Tensor, future: Any, static: Any, series: Tensor) -> Tensor:
        """(B, L, C + P + F), scaled, and what it does not look at, (B,) -> (B, T, C, Q), scaled."""
        del future, static
        low = self.data.minimum[series].double()[:, None]  # (B, 1, C)
        scale = self.data.scale[series].double()[:, None]
        rows = (past[..., : self.n_targets].double() * scale + low).cpu().numpy()
        found = [self.of_window(rows[n], number) for n, number in enumerate(series.tolist())]
        forecast = torch.from_numpy(np.stack(found)).to(past.device)
        return (forecast - low.unsqueeze(-1)) / scale.unsqueeze(-1)

    def _first_window(self) -> tuple[Floats, int]:
        """Of the test split, in the units of the data."""
        split = self.data.test
        batch = split.gather(torch.zeros(1, dtype=torch.int64, device=split.starts.device))
        number = int(split.series_index[0])
        low, scale = (each[number].cpu().numpy() for each in (self.data.minimum, self.data.scale))
        rows = batch.past[0, :, : self.n_targets].double().cpu().numpy()
        return rows * scale + low, number


# statsforecast: one model for each series and column.


class Statistical(ByLibrary):
    """One of statsforecast's models, of the season that windows hold twice."""

    def __init__(self, data: DeviceData, name: str) -> None:
        super().__init__(data, name)
        low, scale = (each.cpu().numpy() for each in (data.minimum, data.scale))
        scaled = training_rows(data)
        self.rows = [rows * scale[n] + low[n] for n, rows in enumerate(scaled)]
        known = {season_rows(data.task.frequency), season_in(scaled)} - {None}
        # Smoothing knows its season; what finds one in each window needs it twice.
        times = 1 if name == "auto_ets" else 2
        held = sorted(s for s in known if s is not None and 1 < s * times <= data.shapes.input_size)
        self.seasons = held
        self.season = next((s for s in reversed(held) if s <= LONGEST_SEASON), 1)
        self.models: dict[tuple[int, int], Any] = {}

    def set_up(self) -> None:
        if self.name == "mstl" and not any(each > LONGEST_SEASON for each in self.seasons):
            raise UsageError("no season of more than 24 rows is there twice in a window")
        if min(len(rows) for rows in self.rows) < self._probe_rows:
            raise UsageError(f"a series has fewer than {self._probe_rows} training rows")
        self._probe()

    def would_take_s(self, windows: int) -> float:
        fit_s, forecast_s = self._probe()
        columns = [len(rows) for rows in self.rows for _ in range(self.n_targets)]
        return fit_s * sum(columns) / self._probe_rows + forecast_s * windows

    @property
    def _probe_rows(self) -> int:
        season = max(self.seasons) if self.name == "mstl" else self.season
        return max(PROBE_ROWS, PROBE_SEASONS * season)

    def _probe(self) -> tuple[float, float]:
        """Seconds to fit one column's first rows, and to forecast a window."""
        rows, number = self._first_window()
        began = time.perf_counter()
        model = self._fitted(self.rows[number][-self._probe_rows :, 0])
        fitted = time.perf_counter()
        self.models = {(number, column): model for column in range(self.n_targets)}
        self.of_window(rows, number)
        return fitted - began, time.perf_counter() - fitted

    def fit(self) -> None:
        for number, rows in enumerate(self.rows):
            for column in range(self.n_targets):
                self.models[number, column] = self._fitted(rows[:, column])

    def _fitted(self, column: Floats) -> Any:
        from statsforecast import models

        season = self.season
        if self.name == "auto_arima":
            return models.AutoARIMA(season_length=season).fit(column)
        if self.name == "auto_theta":
            found = models.AutoTheta(season_length=season).fit(column)
            found.forward = functools.partial(_theta, found)
            return found
        if self.name == "auto_ets":
            found = models.AutoETS(season_length=season).fit(column)
            found.forward = functools.partial(_smoothing, found)
            return found
        found = models.MSTL(self.seasons, trend_forecaster=models.AutoETS(model="ZZN")).fit(column)
        trend = found.trend_forecaster
        trend.forward = functools.partial(_smoothing, trend)
        return found

    def of_window(self, past: Floats, series: int) -> Floats:
        bounds = {bound_of(each): n for n, each in enumerate(self.levels)}
        asked = sorted({level for _, level in bounds})
        found = np.empty((self.horizon, self.n_targets, len(self.levels)))
        for column in range(self.n_targets):
            model = self.models[series, column]
            y = np.ascontiguousarray(past[:, column])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of windows that fit badly; the score says it
                told = model.forward(y=y, h=self.horizon, level=asked)
            for (side, level), place in bounds.items():
                found[:, column, place] = np.asarray(told[f"{side}-{level}"])
        return found


def bound_of(quantile: float) -> tuple[str, float]:
    """The interval's bound that a quantile is: its side, and its level in per cent.

    >>> bound_of(0.05)
    ('lo', 90.0)
    """
    return "lo" if quantile <= 0.5 else "hi", round(100 * abs(1 - 2 * quantile), 8)  # noqa: PLR2004


def _smoothing(
    fitted: Any, y: Floats, h: int, level: Sequence[float] | None = None, **_: Any
) -> dict[str, Floats]:
    """Exponential smoothing carried over `y`."""
    from statsforecast.ets import forecast_ets, forward_ets

    model = fitted.model_
    par = np.concatenate([model["par"][:4], _state(model, y)])
    carried = forward_ets({**model, "par": par}, y=y)
    carried["sigma2"] = model["sigma2"]  # estimated once, as all else
    found: dict[str, Floats] = forecast_ets(carried, h=h, level=level)
    return {name: each for name, each in found.items() if name == "mean" or name[2:3] == "-"}


def _state(model: Mapping[str, Any], y: Floats) -> Floats:
    """Where `y` begins: the season as it was estimated, from the place in it that leaves least of
    `y` to a straight line; the slope as it was estimated, for that of few rows is noise, which a
    slope that hardly changes would keep; and the mean level of the first rows without these.
    """
    _, trend, season = model["components"][:3]
    slope, pattern = np.split(model["states"][-1][1:], [int(trend != "N")])
    pattern = pattern[::-1]
    best, least, begins = y, math.inf, pattern
    line = np.vander(np.arange(len(y)), 2)
    for place in range(len(pattern)):
        turned = np.roll(pattern, -place)
        whole = np.resize(turned, len(y))
        without = y - whole if season == "A" else y / np.clip(whole, 1e-2, None)
        left = without - line @ np.linalg.lstsq(line, without)[0]
        size = float(left.std()) / (1.0 if season == "A" else abs(float(without.mean())) or 1.0)
        if size < least:
            best, least, begins = without, size, turned
    first = best[:FIRST_ROWS]
    steps = np.arange(1, len(first) + 1)
    if trend != "N":
        first = first - slope * steps if trend == "A" else first / slope**steps
    return np.concatenate([[first.mean()], slope, begins[::-1]])


def _theta(
    fitted: Any, y: Floats, h: int, level: Sequence[float] | None = None, **_: Any
) -> dict[str, Floats]:
    """Theta carried over `y`, from half the level of its first season, as the library begins. It
    takes its season and slope from `y` alone, as it would if it were fitted to `y`: hence weak.
    """
    from statsforecast.theta import forecast_theta, forward_theta

    model = fitted.model_
    begins = {"initial_smoothed": float(y[: max(model["m"], 1)].mean()) / 2}
    carried = forward_theta({**model, "par": {**model["par"], **begins}}, y=y)
    found: dict[str, Floats] = forecast_theta(carried, h=h, level=level)
    return found


# Chronos: a model that was trained elsewhere, in a folder of this machine.


class Foundation(ByLibrary):
    """A Chronos model of a local folder. Nothing is fetched, and no code of the folder runs."""

    def __init__(self, data: DeviceData, folder: Path) -> None:
        super().__init__(data, CHRONOS)
        self.folder = folder
        self.pipeline: Any = None

    def set_up(self) -> None:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            os.environ[name] = "1"
        from chronos import BaseChronosPipeline

        self.pipeline = BaseChronosPipeline.from_pretrained(
            str(self.folder),
            device_map=self.data.minimum.device,
            local_files_only=True,
            use_safetensors=True,
        )
        given = getattr(self.pipeline, "quantiles", None) or self.levels
        scored = self.data.task.eval_quantiles
        self.lacks = tuple(q for q in scored if not min(given) <= q <= max(given))
        self.of_window(*self._first_window())

    def would_take_s(self, windows: int) -> float:
        rows, number = self._first_window()
        began = time.perf_counter()
        self.of_window(rows, number)
        return (time.perf_counter() - began) * windows

    def of_window(self, past: Floats, series: int) -> Floats:
        del series
        torch.manual_seed(0)  # the first models of the family draw samples
        columns = torch.from_numpy(past.T.copy()).float()  # (C, L)
        quantiles, _ = self.pipeline.predict_quantiles(
            columns.unsqueeze(1) if self._of_several else columns,
            prediction_length=self.horizon,
            quantile_levels=list(self.levels),
        )
        if self._of_several:
            quantiles = torch.stack([each[0] for each in quantiles])
        found: npt.NDArray[np.float64] = quantiles.double().cpu().numpy()  # (C, T, Q)
        return found.swapaxes(0, 1)

    @property
    def _of_several(self) -> bool:
        """Whether it forecasts several columns of a window together: from Chronos-2 on."""
        return type(self.pipeline).__name__ == "Chronos2Pipeline"


def there_are(data: DeviceData, foundation: Path | None) -> Iterator[ByLibrary]:
    """Those of the libraries that are installed."""
    if importlib.util.find_spec("statsforecast") is not None:
        for name in STATISTICAL:
            yield Statistical(data, name)
    if foundation is not None and importlib.util.find_spec("chronos") is not None:
        yield Foundation(data, foundation)
