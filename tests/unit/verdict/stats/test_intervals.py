from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tuner.verdict.stats.intervals import (
    Interval,
    mean_interval,
    median_interval,
    percentile_interval,
    resampled_medians,
    resampled_runs,
)


def test_fewer_than_five_runs_have_no_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0]) is None
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is not None


def test_the_same_runs_give_the_same_interval_in_any_order() -> None:
    values = np.random.default_rng(3).normal(0.8, 0.01, 10)
    assert median_interval(values) == median_interval(values[::-1]) is not None


def test_an_interval_of_equal_values_is_that_value() -> None:
    assert median_interval([2.0] * 6) == Interval(2.0, 2.0, 2.0, 6)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    samples = rng.normal(1.0, 0.05, size=(400, 10))
    covered = sum(
        found.covers(1.0) for row in samples if (found := median_interval(row)) is not None
    )
    assert 0.93 <= covered / 400 <= 0.99


def test_a_percentile_interval_is_the_middle_of_the_resamples_and_wider_for_few_runs() -> None:
    many, few = (percentile_interval(50.0, np.arange(101.0), runs=runs) for runs in (10_000, 10))
    assert (many.low, many.high) == pytest.approx((2.5, 97.5), abs=0.01)
    # z = 2.262 * sqrt(10 / 9)
    assert (few.low, few.high) == pytest.approx((0.856, 99.144), abs=0.001)
    assert few.as_dict() == {"median": 50.0, "low": few.low, "high": few.high}
    assert resampled_runs(4, 10).shape == (10, 4)


@pytest.mark.parametrize("n", [5, 6, 31])
def test_medians_of_sorted_values_are_those_of_their_resamples(n: int) -> None:
    values = np.sort(np.random.default_rng(n).normal(size=n))
    there = median_interval(values)
    assert there is not None
    drawn = np.median(values[resampled_runs(n)], axis=1)
    assert there == percentile_interval(float(np.median(values)), drawn, n)
    assert np.array_equal(resampled_medians(values), drawn)


def test_the_interval_of_a_mean_is_students() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 6.0])
    theirs = stats.ttest_1samp([1.0, 2.0, 3.0, 6.0], 0.0).confidence_interval()
    assert found is not None
    assert (found.estimate, found.runs) == (3.0, 4)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    assert mean_interval([1.0]) is None
