from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.support.present import present
from tuner.verdict.stats.searches import chance_at_least, next_draw


@pytest.mark.parametrize("successes", [0, 1, 3, 5])
def test_the_chance_is_the_limit_of_an_exact_binomial_test(successes: int) -> None:
    limit = chance_at_least(successes, 5)
    exact = stats.binomtest(successes, 5, alternative="greater").proportion_ci(0.95)
    assert limit == pytest.approx(exact.low, abs=1e-9)
    assert chance_at_least(5, 5) == pytest.approx(0.05 ** (1 / 5))


@pytest.mark.parametrize("n", [3, 5, 9])
def test_one_more_draw_lies_within_in_nine_cases_of_ten(n: int) -> None:
    rng = np.random.default_rng(n)
    inside = 0
    for draws in np.exp(rng.normal(-1.0, 0.2, size=(4000, n + 1))):
        inside += present(next_draw(draws[:n].tolist())).covers(draws[n])
    assert inside / 4000 == pytest.approx(0.9, abs=0.015)


def test_it_is_around_the_geometric_mean_whatever_the_order() -> None:
    found = present(next_draw([0.25, 1.0, 0.5]))
    assert found == next_draw([1.0, 0.5, 0.25])
    assert found.estimate == pytest.approx(0.5)
    assert math.sqrt(found.low * found.high) == pytest.approx(0.5)
    wide = stats.t.ppf(0.95, 2) * math.log(2) * math.sqrt(4 / 3)
    assert found.high == pytest.approx(0.5 * math.exp(wide))


def test_two_draws_say_nothing_of_a_third() -> None:
    assert next_draw([0.4, 0.5]) is None
    assert next_draw([0.4, 0.5, math.inf]) is None
    assert next_draw([0.4, 0.5, 0.0]) is None
