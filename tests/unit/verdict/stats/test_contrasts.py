"""Factors and differences of means over independent runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import ttest_ind

from tests.support.present import present
from tuner.verdict.compare.steps import Change, contrast, mean_of


def factor(after: Sequence[float], before: Sequence[float], **more: bool) -> Change:
    logs = [[math.log(value) for value in values] for values in (after, before)]
    return present(contrast([(1, mean_of(logs[0], **more)), (-1, mean_of(logs[1]))], factor=True))


def test_the_interval_is_that_of_welchs_test() -> None:
    rng = np.random.default_rng(1)
    after, before = np.exp(rng.normal(0.6, 0.2, 9)), np.exp(rng.normal(0.0, 0.05, 6))
    found = factor(list(after), list(before))
    theirs = ttest_ind(np.log(after), np.log(before), equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((math.exp(theirs.low), math.exp(theirs.high)))
    assert found.estimate == pytest.approx(math.exp(np.log(after).mean() - np.log(before).mean()))
    assert found.clear
    assert f"{found:.1f}" == f"{found.estimate:.1f} [{found.low:.1f}, {found.high:.1f}]"


def test_it_covers_the_true_factor_of_two_changes_together_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(1000):
        means = [mean_of(list(rng.normal(0.1 * n, 0.1 + 0.1 * n, 8))) for n in range(4)]
        found = present(contrast(list(zip((1, -1, -1, 1), means, strict=True)), factor=False))
        covered += found.low <= 0.0 <= found.high
    assert 930 <= covered <= 970


def test_runs_that_a_limit_cut_off_leave_a_bound() -> None:
    long, short = [200.0, 190.0, 200.0, 195.0], [100.0, 90.0, 105.0, 98.0]
    least, most = factor(long, short, cut=True), factor(short, long, cut=True)
    assert (least.bound, least.clear) == ("at least", True)
    assert f"{least:.2f}" == f"at least {least.low:.2f}"
    assert (most.bound, most.clear) == (
        "at least",
        False,
    )  # it is less by what is known, and no more
    both = contrast([(1, mean_of(long, cut=True)), (-1, mean_of(short, cut=True))], factor=False)
    assert f"{both:.2f}" == "unknown"
    assert not present(both).clear


def test_two_runs_say_nothing_and_runs_without_spread_are_exact() -> None:
    assert mean_of([1.0, 2.0]) is None
    assert contrast([(1, mean_of([1.0, 2.0])), (-1, mean_of([1.0, 2.0, 3.0]))], factor=True) is None
    exact = factor([8.0] * 3, [4.0] * 3)
    assert (exact.low, exact.high) == pytest.approx((2.0, 2.0))
    assert exact.clear
