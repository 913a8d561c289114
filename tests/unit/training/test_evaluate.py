"""MQL: against numpy written out, and against darts' `mql` on the same forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import darts
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from darts.metrics import mql
from torch import nn

from tuner.config import RunConfig
from tuner.data.prepare import TestWindows
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.training import evaluate, fit
from tuner.training.quantile_loss import mean_quantile_loss, mean_quantile_loss_per_window

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def model(data: DeviceData, run_config: Callable[..., RunConfig]) -> nn.Module:
    result = fit(run_config("batchnorm", max_epochs=3), data)
    assert result.model is not None
    return result.model


def _forecasts(
    model: nn.Module, data: DeviceData, split: DeviceSplit, series: int
) -> tuple[Floats, Floats]:
    """One series' forecasts, (N, T, C, Q of all trained levels), and what came, (N, T, C)."""
    low, spread = data.minimum[series].numpy(), data.scale[series].numpy()
    forecasts, targets = [], []
    for i in range(len(split)):
        if int(split.series_index[i]) == series:
            window = split.gather(torch.tensor([i]))
            with torch.no_grad():
                forecast = model(window.past, window.future, window.static)[0].double().numpy()
            forecasts.append(forecast * spread[:, None] + low[:, None])
            targets.append(window.target[0].double().numpy() * spread + low)
    return np.stack(forecasts), np.stack(targets)


def _naive_mql(model: nn.Module, data: DeviceData, split: DeviceSplit, series: int) -> float:
    forecasts, targets = _forecasts(model, data, split, series)
    losses = []
    for level in data.task.eval_quantiles:
        error = targets - forecasts[..., data.task.quantiles.index(level)]
        losses.append(2 * np.where(error > 0, level * error, (level - 1) * error))
    return float(np.mean(losses))


def test_evaluation_equals_a_computation_written_out_in_numpy(
    model: nn.Module, data: DeviceData
) -> None:
    evaluation = evaluate(model, data)
    for position, name in enumerate(data.series):
        assert evaluation.test_mql[name] == pytest.approx(
            _naive_mql(model, data, data.test, position), rel=1e-5
        )
        assert evaluation.val_mql[name] == pytest.approx(
            _naive_mql(model, data, data.val, position), rel=1e-5
        )
    assert evaluation.test_mql_mean == pytest.approx(np.mean(list(evaluation.test_mql.values())))
    assert evaluation.val_mql_mean == pytest.approx(np.mean(list(evaluation.val_mql.values())))
    assert list(evaluation.test_mql) == list(data.series)


@pytest.mark.parametrize("windows", [TestWindows.SEARCHED, TestWindows.LAST_BLOCK])
def test_each_block_has_the_mql_of_its_own_windows_written_out(
    model: nn.Module, data: DeviceData, windows: TestWindows
) -> None:
    """By slices: of each series' six windows the last two are the last block."""
    slices = {1: slice(0, 2), 2: slice(2, 3), 3: slice(3, 4), 4: slice(4, 6)}
    found = evaluate(model, data, windows=windows)
    assert tuple(found.test_blocks) == windows.blocks()
    for position, name in enumerate(data.series):
        mine = torch.nonzero(data.test.series_index == position).flatten()
        assert len(mine) == 6
        plain = []
        for number in windows.blocks():
            index = mine[slices[number]]
            part = replace(
                data.test,
                starts=data.test.starts[index],
                series_index=data.test.series_index[index],
            )
            plain.append(_naive_mql(model, data, part, position))
            by_series = found.test_blocks[number].by_series
            assert by_series[name] == pytest.approx(plain[-1], rel=1e-5)
        assert found.test_mql[name] == pytest.approx(np.mean(plain), rel=1e-5)
    blocks = found.test_blocks.values()
    assert found.test_mql_mean == pytest.approx(np.mean([each.mean for each in blocks]))
    whole = evaluate(model, data)
    assert (found.val_mql, found.val_mql_mean) == (whole.val_mql, whole.val_mql_mean)
    assert whole.test_blocks == {}


def test_a_search_is_not_given_the_last_block(model: nn.Module, data: DeviceData) -> None:
    """Whatever stands in the rows that it forecasts, nothing of the search's figures changes."""
    first = int(data.test.starts[data.test.series_index == 0][4]) + data.task.input_size
    broken = data.test.targets.clone()
    broken[first : first + 2 * data.task.horizon] = torch.nan
    test = replace(data.test, targets=broken)
    expected = evaluate(model, data, windows=TestWindows.SEARCHED)
    assert evaluate(model, replace(data, test=test), windows=TestWindows.SEARCHED) == expected
    assert math.isnan(evaluate(model, replace(data, test=test)).test_mql_mean)


def test_test_mql_equals_darts_mql_on_the_same_forecasts(
    model: nn.Module, data: DeviceData
) -> None:
    """darts is given forecast quantiles as its models give them: a component a column and level."""
    levels = data.task.eval_quantiles
    columns = data.task.target_columns
    names = [f"{column}_q{level:.3f}" for column in columns for level in levels]
    evaluation = evaluate(model, data)
    for position, name in enumerate(data.series):
        forecasts, targets = _forecasts(model, data, data.test, position)
        picked = forecasts[..., [data.task.quantiles.index(level) for level in levels]]
        actual, predicted = [], []
        for truth, forecast in zip(targets, picked, strict=True):
            hours = pd.date_range("2024-01-01", periods=len(truth), freq="h")
            actual.append(darts.TimeSeries(hours, truth[..., None], components=list(columns)))
            predicted.append(
                darts.TimeSeries(
                    hours, forecast.reshape(len(truth), -1)[..., None], components=names
                )
            )
        theirs = np.mean(mql(actual, predicted, q=list(levels)))
        assert evaluation.test_mql[name] == pytest.approx(float(theirs), rel=1e-5)


def test_mean_quantile_loss_at_the_median_is_the_mean_absolute_error() -> None:
    target = torch.tensor([[[1.0], [5.0]], [[0.0], [2.0]]])  # (2, 2, 1)
    prediction = torch.tensor([[[3.0], [4.0]], [[0.0], [-2.0]]]).unsqueeze(-1)
    median = torch.tensor([0.5])
    assert mean_quantile_loss_per_window(prediction, target, median).tolist() == [1.5, 2.0]
    assert mean_quantile_loss(prediction, target, median).item() == 1.75


def test_a_high_quantile_is_charged_more_for_being_too_low() -> None:
    level, target = torch.tensor([0.9]), torch.zeros(1, 1, 1)
    too_low = mean_quantile_loss(torch.full((1, 1, 1, 1), -1.0), target, level)
    too_high = mean_quantile_loss(torch.full((1, 1, 1, 1), 1.0), target, level)
    assert (too_low.item(), too_high.item()) == pytest.approx((1.8, 0.2))


def test_evaluation_leaves_the_model_as_it_was(model: nn.Module, data: DeviceData) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for mode in (True, False):
        model.train(mode)
        evaluate(model, data)
        assert model.training is mode
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_forecast_that_is_no_number_spoils_only_its_own_series(
    model: nn.Module, data: DeviceData
) -> None:
    broken = data.minimum.clone()
    broken[1] = torch.nan
    expected, found = evaluate(model, data), evaluate(model, replace(data, minimum=broken))
    first, second = data.series
    assert found.test_mql[first] == expected.test_mql[first]
    assert math.isnan(found.test_mql[second])
    assert math.isnan(found.test_mql_mean)
