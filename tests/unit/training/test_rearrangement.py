"""Sorted quantiles: none cross, and the loss over all levels is never larger."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.training.quantile_loss import crosses, pinball, rearranged

LEVELS = torch.tensor([0.05, 0.2, 0.5, 0.7, 0.95], dtype=torch.float64)


def test_a_forecast_crosses_where_a_higher_level_is_below_a_lower_one() -> None:
    forecast = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [2.0, 2.0, 2.0], [3.0, 2.0, 1.0]])
    assert crosses(forecast).tolist() == [False, True, False, True]
    assert rearranged(forecast).tolist() == [[1, 2, 3], [1, 2, 3], [2, 2, 2], [1, 2, 3]]
    assert not crosses(rearranged(forecast)).any()


@given(
    values=st.lists(st.floats(-100, 100), min_size=5, max_size=5),
    came=st.floats(-100, 100),
)
@settings(max_examples=50)
def test_sorting_never_makes_the_loss_over_all_levels_larger(
    values: list[float], came: float
) -> None:
    forecast = torch.tensor(values, dtype=torch.float64).reshape(1, 1, 1, 5)
    target = torch.full((1, 1, 1), came, dtype=torch.float64)
    before, after = (
        float(pinball(each, target, LEVELS).sum()) for each in (forecast, rearranged(forecast))
    )
    assert after <= before + 1e-9


def test_sorting_a_crossed_forecast_gains_what_the_exchanged_levels_differ_by() -> None:
    """Two levels p < q with values a > b: exchanged, they lose (q - p) (a - b) less, whatever
    came."""
    levels = torch.tensor([0.2, 0.7], dtype=torch.float64)
    forecast = torch.tensor([[[[5.0, 1.0]]]], dtype=torch.float64)
    for came in np.linspace(-10, 10, 7):
        target = torch.full((1, 1, 1), came, dtype=torch.float64)
        before, after = (
            float(pinball(each, target, levels).sum()) for each in (forecast, rearranged(forecast))
        )
        assert before - after == pytest.approx(0.5 * 4.0)
