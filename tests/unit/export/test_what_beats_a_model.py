"""A trained model beside forecasts without a network: by the series that its task is about."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tuner.export.train import Trained, worth_of
from tuner.study.baselines import Scored
from tuner.training import Evaluation
from tuner.training.baselines.plain import Timed


def scores(a: float, b: float) -> Evaluation:
    by_series = {"a": a, "b": b}
    mean = (a + b) / 2
    return Evaluation(test_mql=by_series, test_mql_mean=mean, val_mql=by_series, val_mql_mean=mean)


@pytest.mark.parametrize(("series", "loses"), [("a", False), ("b", True), (None, True)])
def test_it_loses_by_the_objective_series_or_else_by_the_mean(
    series: str | None, loses: bool
) -> None:
    model: Any = type("Kept", (), {"scores": scores(1.0, 5.0)})
    naive = Timed(scores=scores(2.0, 3.0), fit_s=0.0, forecast_s=0.0)
    said = worth_of(cast("Trained", model), {"last_value": naive}, series)
    assert ("loses to a baseline" in said) == loses
    if series == "b":
        assert "the last value: 5 against 3 test MQL" in said
    ets = Scored(name="auto_ets", test_mql=0.5)
    said = worth_of(cast("Trained", model), {"last_value": naive}, series, [ets])
    assert "loses to a baseline, AutoETS" in said, "its study knows more of them"
