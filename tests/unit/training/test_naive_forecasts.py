"""Forecasts without a network, on the windows that networks are scored on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.tiny_tasks import tiny_task
from tuner.config import Objective
from tuner.data.prepare import TestWindows, prepare
from tuner.data.task import load_task
from tuner.data.times import season_rows
from tuner.data.windows import DeviceData, to_device
from tuner.training.evaluate import LAST_VALUE, SEASONAL_NAIVE, baselines, evaluate, score_baselines


@pytest.fixture(scope="module")
def data() -> DeviceData:
    return to_device(prepare(load_task("demo")), "cpu")


@pytest.mark.parametrize(
    ("frequency", "rows"),
    [
        ("h", 24),
        ("15min", 96),
        ("min", 1440),
        ("7min", None),
        ("2h", 12),
        ("D", 7),
        ("2D", None),
        ("B", 5),
        ("W-SUN", 52),
        ("MS", 12),
        ("2MS", None),
        ("QE", 4),
        ("YS", None),
    ],
)
def test_a_season_is_a_day_a_week_or_a_year_of_rows(frequency: str, rows: int | None) -> None:
    assert season_rows(frequency) == rows


def test_the_median_repeats_the_past_and_the_levels_spread_as_the_errors_of_training(
    data: DeviceData,
) -> None:
    found = baselines(data)
    assert set(found) == {LAST_VALUE, SEASONAL_NAIVE}
    batch = data.train.gather(torch.arange(len(data.train)))
    s = data.shapes
    rows = {
        LAST_VALUE: [s.input_size - 1] * s.horizon,
        SEASONAL_NAIVE: [s.input_size - 24 + t % 24 for t in range(s.horizon)],
    }
    for name, each in found.items():
        forecast = each(batch.past, batch.future, batch.static)
        assert forecast.shape == (len(data.train), s.horizon, s.n_targets, s.n_quantiles)
        errors = (batch.target - batch.past[:, rows[name], : s.n_targets]).numpy()
        levels = np.quantile(errors, data.task.quantiles, axis=0)  # (Q, T, C)
        spread = (forecast - batch.past[:, rows[name], : s.n_targets].unsqueeze(-1))[0].numpy()
        np.testing.assert_allclose(spread, np.moveaxis(levels, 0, -1), atol=1e-5)
        below = (batch.target.unsqueeze(-1) <= forecast + 1e-6).float().mean(dim=(0, 1, 2))
        nominal = torch.tensor(data.task.quantiles)
        assert torch.allclose(below, nominal, atol=0.02), "on training windows they hold"


def test_a_past_shorter_than_a_season_has_no_season(data: DeviceData) -> None:
    assert set(baselines(data.seeing(23))) == {LAST_VALUE}


def test_they_are_scored_as_a_network_is(data: DeviceData) -> None:
    scores = score_baselines(data)
    assert scores[SEASONAL_NAIVE].test_mql_mean < scores[LAST_VALUE].test_mql_mean
    own = baselines(data)[LAST_VALUE]
    assert evaluate(own, data) == scores[LAST_VALUE]
    by_hand = []
    for index in range(len(data.test)):
        batch = data.test.gather(torch.tensor([index]))
        series = int(data.test.series_index[index])
        scale, low = data.scale[series].numpy(), data.minimum[series].numpy()
        forecast = own(batch.past, batch.future, batch.static)[0].double().numpy()
        error = (batch.target[0].double().numpy() * scale + low)[..., None] - (
            forecast * scale[:, None] + low[:, None]
        )
        levels = np.array(data.task.quantiles)
        loss = 2 * np.maximum(levels * error, (levels - 1) * error)
        by_hand.append(loss[..., list(data.task.eval_index)].mean())
    assert scores[LAST_VALUE].test_mql_mean == pytest.approx(np.mean(by_hand), rel=1e-9)
    part = score_baselines(data, windows=TestWindows.SEARCHED)
    assert part[LAST_VALUE].test_blocks


def test_each_column_has_a_score_and_a_scaled_objective_weighs_them_alike() -> None:
    task = load_task("demo")
    plain = to_device(prepare(task), "cpu")
    scaled_task = task.model_copy(update={"objective": Objective.SCALED})
    assert task.definition() == {
        key: value for key, value in scaled_task.definition().items() if key != "objective"
    }
    scaled = to_device(prepare(scaled_task), "cpu")
    model = baselines(plain)[LAST_VALUE]
    before, after = evaluate(model, plain), evaluate(model, scaled)
    assert before.test_columns == after.test_columns
    assert set(before.test_columns) == set(task.target_columns)
    assert np.mean(list(before.test_columns.values())) == pytest.approx(before.test_mql_mean)
    # One series more: by hand, of each series the mean over columns in units of its change.
    for number, name in enumerate(plain.series):
        mine = torch.nonzero(plain.test.series_index == number).flatten()
        batch = plain.test.gather(mine)
        scale, change = plain.scale[number], plain.change[number]
        forecast = model(batch.past, batch.future, batch.static).double()
        error = (batch.target.double().unsqueeze(-1) - forecast) * scale[:, None]
        levels = torch.tensor(task.quantiles, dtype=torch.float64)
        loss = 2 * torch.maximum(levels * error, (levels - 1) * error)
        of_columns = loss[..., list(task.eval_index)].mean(dim=(0, 1, 3)) / change
        assert after.test_mql[name] == pytest.approx(float(of_columns.mean()), rel=1e-9)
    rows = prepare(task).train.targets
    first = rows[: len(rows) // len(plain.series)].astype(float)
    by_row = np.abs(np.diff(first, axis=0)).mean(axis=0) * plain.scale[0].numpy()
    np.testing.assert_allclose(plain.change[0].numpy(), by_row, rtol=1e-5)


def test_a_horizon_longer_than_a_season_repeats_the_last_one_again(tmp_path: Path) -> None:
    task = tiny_task().model_copy(update={"horizon": 30})
    longer = to_device(prepare(task, cache_dir=tmp_path), "cpu")
    rows = baselines(longer)[SEASONAL_NAIVE].rows.tolist()
    assert rows == [*range(24), *range(6)]
