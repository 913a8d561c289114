"""By which configurations the model of repeated runs is fitted, and in which units."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.search.gaussian_process import centre_and_scale
from tuner.search.next_run_model import GP_ROWS, Repeated, _some_of, another_figure, believed
from tuner.search.past_runs import Configurations, PastRun


def repeated(runs: np.ndarray, mean: np.ndarray) -> Repeated:
    n = len(runs)
    where = np.random.default_rng(0).random((n, 3))
    nothing = np.zeros(n)
    return Repeated(where=where, mean=mean, runs=runs, squares=nothing, length=nothing)


def test_what_ran_most_often_is_among_them_and_of_the_others_every_so_many() -> None:
    runs = np.where(np.arange(400) % 2 == 0, 2.0, 1.0)
    runs[390], runs[399] = 30.0, 20.0
    found = _some_of(repeated(runs, np.arange(400.0)))
    assert len(found.runs) == GP_ROWS
    assert {390.0, 399.0} <= set(found.mean)
    assert list(found.mean) == sorted(found.mean)
    assert found.mean[0] == 0.0


@pytest.mark.parametrize("figure", [0.1, 0.3, 7e9])
def test_a_spread_that_is_rounding_is_none(figure: float) -> None:
    """25 times 0.1 has a standard deviation of 1e-17, and 25 times 0.3 has none."""
    centre, scale = centre_and_scale(np.full(25, figure))
    assert centre == pytest.approx(figure)
    assert scale == 1.0
    belief = believed(repeated(np.ones(25), np.full(25, figure)))
    usual = believed(repeated(np.ones(25), np.full(25, 0.3)))
    assert belief.noise == pytest.approx(usual.noise)
    assert centre_and_scale(np.array([1.0, 3.0])) == (2.0, 1.0)


def test_a_figure_is_learnt_from_noisy_values_and_known_how_surely() -> None:
    random = np.random.default_rng(0)
    x, new = random.random((80, 3)), random.random((200, 3))

    def function(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = 5 + np.sin(4 * x[:, 0]) + x[:, 1] ** 2
        return found

    past = [PastRun(where=tuple(place), seconds=1.0, mql=1.0) for place in x.tolist()]
    ran = Configurations.of(past, past[0].where)
    figure = another_figure(ran, np.arange(80), function(x) + random.normal(0, 0.1, 80))
    found = figure.of(np.arange(0), new)
    off, sd = found.mean - function(new), np.sqrt(found.variance)
    assert np.sqrt(np.mean(off**2)) < 0.15, "the function's own spread is 0.7"
    assert np.mean(np.abs(off) < 2 * sd) > 0.85
    away = figure.of(np.arange(0), np.full((1, 3), 3.0))
    assert away.variance[0] > 9 * found.variance.mean(), "far away nothing is known"
