"""A trained model beside forecasts without a network: by the series that its task is about."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tuner.export.train import Trained, loses_to
from tuner.training import Evaluation


def scores(a: float, b: float) -> Evaluation:
    by_series = {"a": a, "b": b}
    mean = (a + b) / 2
    return Evaluation(test_mql=by_series, test_mql_mean=mean, val_mql=by_series, val_mql_mean=mean)


@pytest.mark.parametrize(("series", "loses"), [("a", False), ("b", True), (None, True)])
def test_it_loses_by_the_objective_series_or_else_by_the_mean(
    series: str | None, loses: bool
) -> None:
    model: Any = type("Kept", (), {"scores": scores(1.0, 5.0)})
    said = loses_to(cast("Trained", model), {"last_value": scores(2.0, 3.0)}, series)
    assert bool(said) == loses
    if series == "b":
        assert "comes to 3, this model to 5" in said
