"""Crossings, sorted MQL, coverage and width: of a known distribution, and written out in numpy."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tuner.config import Architecture, Hyperparameters
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.training import evaluate
from tuner.training.evaluate import forecast_quality
from tuner.training.quantile_loss import symmetric_pairs


class Fixed(nn.Module):
    """Forecasts the same for every window: (T, C, Q)."""

    def __init__(self, forecast: Tensor) -> None:
        super().__init__()
        self.forecast = forecast

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        return self.forecast.expand(len(past), *self.forecast.shape)


def normal_targets(data: DeviceData, days: int = 500) -> DeviceData:
    """The same task, whose test split is rows of standard normal numbers, one series after the
    other, already in original units."""
    sizes = data.shapes
    window = sizes.input_size + sizes.horizon
    rows = days * sizes.horizon + window
    random = torch.Generator().manual_seed(3)
    targets = torch.randn(2 * rows, sizes.n_targets, generator=random)
    starts = torch.arange(days) * sizes.horizon
    test = replace(
        data.test,
        history=torch.zeros(2 * rows, data.test.history.shape[1]),
        targets=targets,
        future=torch.zeros(2 * rows, sizes.n_future),
        starts=torch.cat([starts, starts + rows]),
        series_index=torch.arange(2).repeat_interleave(days),
    )
    minimum = torch.zeros_like(data.minimum)
    return replace(data, test=test, minimum=minimum, scale=torch.ones_like(minimum))


def true_quantiles(data: DeviceData) -> Tensor:
    levels = torch.tensor([NormalDist().inv_cdf(level) for level in data.task.quantiles])
    return levels.expand(data.shapes.horizon, data.shapes.n_targets, -1)


def test_the_coverage_of_a_known_distribution_is_nominal(data: DeviceData) -> None:
    known = normal_targets(data)
    quality = forecast_quality(Fixed(true_quantiles(known)), known)
    assert quality.rows == 1000 * 6 * 2
    assert quality.crossed == 0
    assert [each.levels for each in quality.intervals] == [(0.1, 0.9), (0.25, 0.75)]
    for interval in quality.intervals:
        share = interval.nominal
        sampling = math.sqrt(share * (1 - share) / quality.rows)
        assert interval.overall.coverage == pytest.approx(share, abs=3.5 * sampling)
        width = 2 * NormalDist().inv_cdf(interval.levels[1])
        assert interval.overall.width == pytest.approx(width, rel=1e-6)
        assert set(interval.by_column) == {"a", "b"}
        for found in interval.by_column.values():
            assert found.coverage == pytest.approx(share, abs=3.5 * math.sqrt(2) * sampling)


def test_intervals_that_are_too_narrow_cover_too_little_in_that_column_alone(
    data: DeviceData,
) -> None:
    known = normal_targets(data)
    forecast = true_quantiles(known).clone()
    forecast[:, 0] /= 2
    widest = forecast_quality(Fixed(forecast), known).intervals[0]
    low = 2 * NormalDist().cdf(NormalDist().inv_cdf(0.9) / 2) - 1
    assert widest.by_column["a"].coverage == pytest.approx(low, abs=0.03)
    assert widest.by_column["b"].coverage == pytest.approx(0.8, abs=0.03)
    assert widest.by_column["a"].width == pytest.approx(widest.by_column["b"].width / 2)


def test_what_crossed_is_counted_and_the_score_stays_that_of_unsorted_rows(
    data: DeviceData,
) -> None:
    known = normal_targets(data)
    right = true_quantiles(known)
    wrong = right.clone()
    wrong[2, 1] = right[2, 1].flip(-1)  # one of 6 hours, one of 2 columns
    quality, evaluation = (
        forecast_quality(Fixed(wrong), known),
        evaluate(Fixed(wrong), known),
    )
    assert quality.crossed == pytest.approx(1 / 12)
    best = evaluate(Fixed(right), known)
    assert quality.sorted_mql_mean == pytest.approx(best.test_mql_mean)
    assert quality.sorted_mql == pytest.approx(dict(best.test_mql))
    assert evaluation.test_mql_mean > best.test_mql_mean * 1.01


def test_the_measures_of_a_network_are_those_written_out_in_numpy(data: DeviceData) -> None:
    hyperparameters = Hyperparameters(
        learning_rate=1e-3, weight_decay=0, dropout=0.1, hidden_size=8, batch_size=64
    )
    torch.manual_seed(0)
    model = build_model(Architecture(model="rmsnorm"), data.shapes, hyperparameters)
    quality = forecast_quality(model, data)
    assert model.training, "left in the mode it came in"

    batch = data.test.gather(torch.arange(len(data.test)))
    with torch.no_grad():
        scaled = model.eval()(batch.past, batch.future, batch.static).double().numpy()
    low, spread = (values[data.test.series_index].numpy() for values in (data.minimum, data.scale))
    forecast = scaled * spread[:, None, :, None] + low[:, None, :, None]
    target = batch.target.double().numpy() * spread[:, None] + low[:, None]
    assert quality.crossed == np.mean((np.diff(forecast) < 0).any(axis=-1)) > 0
    ordered = np.sort(forecast)
    for interval, (first, last) in zip(quality.intervals, [(0, 4), (1, 3)], strict=True):
        lower, upper = ordered[..., first], ordered[..., last]
        inside = (lower <= target) & (target <= upper)
        assert interval.overall.coverage == pytest.approx(inside.mean())
        assert interval.overall.width == pytest.approx((upper - lower).mean())
        assert interval.by_column["b"].coverage == pytest.approx(inside[..., 1].mean())
        assert interval.by_column["b"].width == pytest.approx((upper - lower)[..., 1].mean())
    losses = []
    for level, place in ((0.1, 0), (0.5, 2), (0.9, 4)):
        error = target - ordered[..., place]
        losses.append(2 * np.maximum(level * error, (level - 1) * error))
    assert quality.sorted_mql_mean == pytest.approx(np.mean(losses))
    document = quality.as_dict()
    assert document["intervals"][0]["by_column"]["a"].keys() == {"coverage", "width"}
    assert document["sorted_test_mql"].keys() == set(data.series)


def test_pairs_are_those_whose_levels_add_up_to_one() -> None:
    assert symmetric_pairs([0.05, 0.1, 0.5, 0.9]) == [(1, 3)]
    assert symmetric_pairs([0.01, 0.3, 0.7, 0.99]) == [(0, 3), (1, 2)]
    assert symmetric_pairs([0.5]) == []
