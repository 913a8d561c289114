from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tuner.verdict.stats.permutation import holm, least_p, paired_t_p, sign_flip_p, wilcoxon_p


def test_ten_differences_on_one_side_have_the_least_p_there_is() -> None:
    assert sign_flip_p(np.linspace(1, 2, 10)) == 2 / 1024 == least_p(10)


def test_the_permutation_test_is_that_of_scipy() -> None:
    d = np.random.default_rng(2).normal(0.3, 1.0, 9)
    theirs = stats.permutation_test(
        (d,),
        np.mean,
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
        alternative="two-sided",
    )
    assert sign_flip_p(d) == pytest.approx(theirs.pvalue)


def test_no_difference_at_all_is_no_evidence() -> None:
    for test in (sign_flip_p, paired_t_p, wilcoxon_p):
        assert test(np.zeros(8)) == 1.0
        assert test(np.array([])) == 1.0


def test_many_pairs_are_tested_by_random_patterns_that_never_give_zero() -> None:
    d = np.linspace(1, 2, 30)
    assert sign_flip_p(d) == least_p(30) == 1 / 100_000
    weak = np.random.default_rng(4).normal(0.1, 1.0, 30)
    assert sign_flip_p(weak) == pytest.approx(paired_t_p(weak), abs=0.02)


def test_p_is_uniform_where_nothing_differs() -> None:
    # Heavy tails: the test assumes nothing normal.
    d = np.random.default_rng(8).standard_t(3, size=(600, 10))
    rejected = np.mean([sign_flip_p(row) <= 0.05 for row in d])
    assert 0.03 <= rejected <= 0.07


def test_holm_is_its_published_example() -> None:
    # Four p values, 0.05: 0.01*4 and 0.02*3 ... each at least the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.7, 0.9]) == [1.0, 1.0]
