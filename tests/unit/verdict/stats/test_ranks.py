from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tuner.verdict.explain import spearman


def test_the_correlation_is_that_of_the_ranks() -> None:
    rng = np.random.default_rng(6)
    a = rng.normal(size=40)
    b = a + rng.normal(scale=0.5, size=40)
    found = spearman(a, b)
    assert found is not None
    assert found.estimate == pytest.approx(stats.spearmanr(a, b).statistic)
    assert found.low < found.estimate < found.high
    assert found.runs == 40


def test_the_same_order_is_one_and_few_or_equal_scores_are_nothing() -> None:
    found = spearman([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60])
    assert found is not None
    assert (found.estimate, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))
    assert spearman([1, 2, 3], [1, 2, 3]) is None
    assert spearman([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]) is None
