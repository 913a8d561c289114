"""Forecasts without a network, on the windows that networks are scored on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.tiny_tasks import tiny_task
from tuner.config import Objective
from tuner.data.calendars import season_rows
from tuner.data.prepare import TestWindows, prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.training.baselines.plain import (
    LAST_LAGS,
    LAST_VALUE,
    NLINEAR,
    SEASONAL_NAIVE,
    Baseline,
    baselines,
    score_baselines,
    season_in,
)
from tuner.training.evaluate import evaluate


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
    found = {name: make() for name, make in baselines(data).items()}
    assert set(found) == {LAST_VALUE, SEASONAL_NAIVE, LAST_LAGS, NLINEAR}
    batch = data.train.gather(torch.arange(len(data.train)))
    s = data.shapes
    rows = {
        LAST_VALUE: [s.input_size - 1] * s.horizon,
        SEASONAL_NAIVE: [s.input_size - 24 + t % 24 for t in range(s.horizon)],
    }
    for name, each in found.items():
        if name not in rows:
            continue
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
    assert set(baselines(data.seeing(23))) == {LAST_VALUE, LAST_LAGS, NLINEAR}


def test_they_are_scored_as_a_network_is(data: DeviceData) -> None:
    scores = score_baselines(data)
    assert scores[SEASONAL_NAIVE].scores.test_mql_mean < scores[LAST_VALUE].scores.test_mql_mean
    own = baselines(data)[LAST_VALUE]()
    assert evaluate(own, data) == scores[LAST_VALUE].scores
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
    assert scores[LAST_VALUE].scores.test_mql_mean == pytest.approx(np.mean(by_hand), rel=1e-9)
    part = score_baselines(data, windows=TestWindows.SEARCHED)
    assert part[LAST_VALUE].scores.test_blocks


def test_each_column_has_a_score_and_a_scaled_objective_weighs_them_alike() -> None:
    task = load_task("demo")
    plain = to_device(prepare(task), "cpu")
    scaled_task = task.model_copy(update={"objective": Objective.SCALED})
    assert task.definition() == {
        key: value for key, value in scaled_task.definition().items() if key != "objective"
    }
    scaled = to_device(prepare(scaled_task), "cpu")
    model = baselines(plain)[LAST_VALUE]()
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
    naive = baselines(longer)[SEASONAL_NAIVE]()
    assert isinstance(naive, Baseline)
    rows = naive.rows.tolist()
    assert rows == [*range(24), *range(6)]


def test_a_season_is_found_in_the_data_and_noise_has_none() -> None:
    steps = np.arange(220)
    noise = np.random.default_rng(1).normal(size=(220, 1))
    cycle = np.sin(steps * 2 * np.pi / 11)[:, None]
    assert season_in([3 * cycle + noise + steps[:, None] / 20]) == 11
    assert season_in([noise]) is None
    assert season_in([np.ones((50, 1))]) is None


def test_lines_are_found_again_by_series_and_column_and_see_the_past_alone(
    tmp_path: Path,
) -> None:
    """Each column is a rule of its own lags: what is forecast is what the rule says."""
    longer = DemoSource(kind="demo", rows=3000)
    task = tiny_task().model_copy(update={"source": longer})
    data = to_device(prepare(task, cache_dir=tmp_path), "cpu")
    rng, rows = np.random.default_rng(0), len(data.train.targets)
    targets = np.zeros((rows, 2))
    half = rows // 2
    for series in range(2):
        for column in range(2):
            of, slope = targets[series * half : (series + 1) * half, column], 0.5 + 0.2 * column
            for row in range(1, half):
                of[row] = slope * of[row - 1] + series + 0.3 * rng.normal()
    moved = torch.from_numpy(targets)
    data = replace(data, train=replace(data.train, targets=moved, history=moved))
    found = baselines(data)
    mean = torch.tensor([[0.0, 0.0], [1 / 0.5, 1 / 0.3]], dtype=torch.float64)
    past = mean.unsqueeze(1).repeat(1, 24, 1)  # (2, L, 2)
    past[:, -1] += 1.0
    said: torch.Tensor = found[LAST_LAGS]()(past, None, None, torch.tensor([0, 1]))
    median = said[..., data.task.quantiles.index(0.5)]
    for series in range(2):
        for column in range(2):
            for step in range(data.shapes.horizon):
                expected = float(mean[series, column]) + (0.5 + 0.2 * column) ** (step + 1)
                assert float(median[series, step, column]) == pytest.approx(expected, abs=0.15)
    assert bool((said.diff(dim=-1) >= 0).all()), "levels in order"


def test_losses_in_runs_are_those_of_the_objective(data: DeviceData) -> None:
    model = baselines(data)[LAST_VALUE]()
    whole = evaluate(model, data)
    assert len(whole.test_runs) >= 4
    assert np.mean(whole.test_runs) == pytest.approx(whole.test_mql_mean, rel=0.05)
    task = data.task.model_copy(update={"objective_series": "demo2"})
    one = evaluate(model, replace(data, task=task))
    assert np.mean(one.test_runs) == pytest.approx(one.test_mql["demo2"], rel=0.05)
    assert one.test_runs != whole.test_runs
