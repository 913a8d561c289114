"""Intervals that are too narrow, made to hold what they promise; and where that fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.tiny_tasks import tiny_task
from tuner.data.prepare import prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Bound
from tuner.data.windows import DeviceData, DeviceSplit, to_device
from tuner.errors import DataError
from tuner.training.calibration import calibrate, shifted
from tuner.training.evaluate import evaluate, forecast_quality

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


class Narrow(nn.Module):
    """The mean, and intervals of a third of what noise of deviation 1 would need."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = nn.Parameter(torch.tensor([-1.645, -0.674, 0.0, 0.674, 1.645]) / 3)

    def forward(self, past: Tensor, future: Any, static: Any) -> Tensor:
        del future, static
        return self.ends.expand(len(past), 6, 2, 5)


def noise(rows: int, shift: float = 0.0) -> DeviceData:
    """A task whose scaled targets are noise; in the test split it is of another mean."""
    source = DemoSource(kind="demo", rows=rows)
    task = tiny_task(quantiles=LEVELS).model_copy(update={"source": source})
    data = to_device(prepare(task), "cpu")
    torch.manual_seed(0)

    def with_noise(split: DeviceSplit, mean: float) -> DeviceSplit:
        targets = torch.randn_like(split.targets) + mean
        return replace(split, targets=targets, history=targets)

    return replace(data, val=with_noise(data.val, 0.0), test=with_noise(data.test, shift))


def test_a_calibrated_interval_holds_what_it_promises_and_the_protocols_score_stays() -> None:
    data, model = noise(6000), Narrow()
    before, mql = forecast_quality(model, data), evaluate(model, data).test_mql_mean
    assert before.intervals[0].overall.coverage < 0.5, "too narrow"
    found = calibrate(model, data, before)
    assert found.shift.shape == (6, 2, 5), "by column and step"
    for interval in found.after.intervals:
        assert interval.overall.coverage == pytest.approx(interval.nominal, abs=0.03)
    assert found.failed == ""
    assert evaluate(model, data).test_mql_mean == mql
    assert float(found.shift[..., 2].abs().max()) == 0, "the median stays"
    plain = found.as_dict()
    assert plain["coverage"][0]["before"] < 0.5 < plain["coverage"][0]["after"]


def test_of_few_windows_all_steps_are_taken_together() -> None:
    data, model = noise(600), Narrow()
    assert len(data.val) < 200
    found = calibrate(model, data, forecast_quality(model, data))
    assert found.shift.shape == (1, 2, 5)
    assert found.as_dict()["steps_together"]


def test_where_the_test_split_is_another_world_it_says_that_it_failed() -> None:
    data, model = noise(6000, shift=2.0), Narrow()
    found = calibrate(model, data, forecast_quality(model, data))
    assert found.failed.startswith("Calibration failed: the 90% interval holds")
    assert found.as_dict()["failed"] == found.failed


def test_shifted_quantiles_never_cross() -> None:
    shift = torch.tensor([[[0.5, 0.0, -0.5]]])
    assert shifted(torch.tensor([[[[3.0, 1.0, 2.0]]]]), shift).tolist() == [[[[1.5, 2.0, 2.5]]]]


def test_forecasts_stay_within_the_bounds_and_data_beyond_them_is_refused(tmp_path: Path) -> None:
    data, model = noise(600), Narrow()
    low = float(data.minimum[0, 0]) + 1e-3
    bounded = data.task.model_copy(update={"bounds": (Bound(column="a", low=low),)})
    free = forecast_quality(model, data).intervals[0].by_column
    kept = forecast_quality(model, replace(data, task=bounded)).intervals[0].by_column
    assert kept["a"].width < free["a"].width
    assert kept["b"] == free["b"]
    assert bounded.definition() != data.task.definition()
    assert "bounds" not in data.task.definition(), "tasks of before keep their hash"
    with pytest.raises(DataError, match=r"column 'a': has values from .* beyond its bounds"):
        prepare(bounded, cache_dir=tmp_path)


def test_bounds_are_of_targets_and_have_an_end() -> None:
    for wrong in (
        {"column": "c", "low": 0.0},
        {"column": "a"},
        {"column": "a", "low": 1.0, "high": 0.0},
    ):
        with pytest.raises(ValueError, match="bounds"):
            tiny_task(bounds=[wrong])
    task = tiny_task(bounds=[{"column": "b", "high": 100.0}])
    assert task.limits == ([-float("inf")] * 2, [float("inf"), 100.0])
