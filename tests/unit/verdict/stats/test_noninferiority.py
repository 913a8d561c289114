"""Whether one configuration is no worse than another by more than a margin."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tuner.spec.margin import LEVEL
from tuner.verdict.stats.noninferiority import (
    NoWorse,
    misses_more,
    no_worse,
    p_apart,
    p_below,
    paired_ratio,
)

Array = np.ndarray[Any, Any]

MQLS = st.lists(st.floats(0.5, 1.5), min_size=5, max_size=12)


def by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


@pytest.mark.parametrize("wrong", [[0.0] * 5, [-1.0] * 5, [0.8, math.inf, 0.8, 0.8, 0.8]])
def test_figures_without_a_ratio_have_no_test(wrong: list[float]) -> None:
    assert no_worse(by_seed([0.8, 0.7, 0.8, 0.9, 0.8]), by_seed(wrong), margin=0.01) is None


def test_without_skewness_it_is_students_test() -> None:
    b = [0.81, 0.80, 0.80, 0.82, 0.79, 0.82]
    off = [-0.02, -0.01, -0.005, 0.005, 0.01, 0.02]
    a = [1.01 * y - 0.01 + d for y, d in zip(b, off, strict=True)]
    found = no_worse(by_seed(a), by_seed(b), margin=0.01)
    assert found is not None
    expected = stats.ttest_1samp(np.array(off) - 0.01, 0.0, alternative="less").pvalue
    assert found.p == pytest.approx(float(expected))
    assert found.ratio == pytest.approx(np.mean(a) / np.mean(b))
    assert found.pairs == 6


def test_a_tail_of_bad_seeds_does_not_make_it_err() -> None:
    random = np.random.default_rng(6)
    wrong = plain = 0
    students = stats.t.ppf(LEVEL, 29)
    for _ in range(10_000):
        d = 0.014 * (random.gamma(1.0, size=30) - 1) - 0.006 * random.standard_normal(30)
        wrong += p_below(d) < LEVEL
        plain += np.sqrt(30) * d.mean() / d.std(ddof=1) < students
    assert wrong < 0.058 * 10_000
    assert plain > 0.065 * 10_000


@given(MQLS, MQLS, st.floats(0.0, 0.2), st.sampled_from([0.05, 0.2]))
def test_it_claims_where_the_bound_is_within_the_margin_and_p_is_small(
    a: list[float], b: list[float], margin: float, level: float
) -> None:
    found = no_worse(by_seed(a), by_seed(b), margin=margin, level=level)
    assume(found is not None)
    assert isinstance(found, NoWorse)
    assume(abs(found.p - level) > 1e-9)
    assume(abs(found.bound - 1 - margin) > 1e-12)
    assert found.claimed == (found.p < level)
    assert found.claimed == (found.bound < 1 + margin)
    assert found.bound >= found.ratio


def test_the_bound_is_where_the_test_turns() -> None:
    random = np.random.default_rng(3)
    a, b = (0.8 + 0.01 * random.standard_normal(30) for _ in range(2))
    found = no_worse(by_seed(a.tolist()), by_seed(b.tolist()), margin=0.01)
    assert found is not None
    at_bound = no_worse(by_seed(a.tolist()), by_seed(b.tolist()), margin=found.bound - 1)
    assert at_bound is not None
    assert at_bound.p == pytest.approx(LEVEL, abs=1e-6)


def test_the_error_is_as_said_at_the_margin() -> None:
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(1000):
        b = 0.8 + 0.006 * random.standard_normal(30)
        a = 0.8 * 1.01 + 0.012 * random.standard_normal(30)
        found = no_worse(by_seed(a.tolist()), by_seed(b.tolist()), margin=0.01)
        assert found is not None
        wrong += found.claimed
    assert 22 <= wrong <= 58


def test_pairs_are_those_on_shared_seeds() -> None:
    a = {1: 0.8, 2: 0.81, 3: 0.79, 4: 0.8, 5: 0.82, 6: 0.8}
    b = {seed: value for seed, value in a.items() if seed > 1} | {9: 5.0}
    found = no_worse(a, b, margin=0.01)
    assert found is not None
    assert (found.pairs, found.ratio) == (5, 1.0)
    assert no_worse(a, {1: 0.8, 2: 0.8}, margin=0.01) is None


def test_figures_without_noise() -> None:
    same = by_seed([0.8] * 6)
    found = no_worse(same, same, margin=0.01)
    assert found is not None
    assert found.claimed
    assert [found.bound, found.p] == pytest.approx([1.0, 0.0])
    worse = no_worse(by_seed([0.9] * 6), same, margin=0.01)
    assert worse is not None
    assert not worse.claimed
    assert worse.p == 1.0


def test_the_paired_ratio_is_the_geometric_mean_of_pairs() -> None:
    b = by_seed([1.0, 1.2, 0.9, 1.1, 1.05])
    a = {seed: 0.5 * value for seed, value in b.items()}
    found = paired_ratio(a, b)
    assert found is not None
    assert (found.estimate, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    noisy = paired_ratio(by_seed([0.5, 0.7, 0.4, 0.6, 0.5]), b)
    assert noisy is not None
    logs = np.log([0.5, 0.7 / 1.2, 0.4 / 0.9, 0.6 / 1.1, 0.5 / 1.05])
    low, high = stats.t.interval(0.95, 4, logs.mean(), logs.std(ddof=1) / math.sqrt(5))
    assert (noisy.low, noisy.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert paired_ratio(a, {1: 1.0}) is None
    # A time of 0, or beyond all measure, is what a stranger wrote.
    assert paired_ratio({**a, 99: 1e308}, {**b, 99: 1e-308}) is None
    assert paired_ratio({**a, 98: 0.0, 99: 1.0}, {**b, 98: 1.0, 99: 0.0}) == found


def test_runs_on_seeds_of_their_own_are_tested_as_welch_does_where_nothing_is_skewed() -> None:
    half = np.linspace(0.0, 0.03, 20)
    a = np.concatenate([0.8 - half, 0.8 + half])
    b = np.concatenate([0.795 - half / 3, 0.795 + half / 3])
    ours = p_apart(a.tolist(), b.tolist(), margin=0.01)
    theirs = stats.ttest_ind(a, 1.01 * b, equal_var=False, alternative="less").pvalue
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert p_apart([0.8] * 4, b.tolist(), margin=0.01) == 1.0
    assert p_apart([0.8] * 6, [0.8] * 6, margin=0.01) == 0.0
    assert p_apart([0.8] * 6, [0.8, math.nan] * 6, margin=0.01) == 1.0
    assert p_apart([0.8, 1e120] * 6, [0.8] * 6, margin=0.01) == 1.0


@pytest.mark.parametrize("kind", ["normal", "t3", "skewed"])
def test_apart_at_the_margin_it_errs_in_five_of_a_hundred(kind: str) -> None:
    random = np.random.default_rng(8)

    def noise(n: int) -> Array:
        found: Array = random.standard_normal(n)
        if kind == "t3":
            found = random.standard_t(3, n) / math.sqrt(3)
        if kind == "skewed":
            found = (random.gamma(4.0, size=n) - 4.0) / 2.0
        return found

    wrong = 0
    for _ in range(3000):
        default, mine = 0.8 + 0.006 * noise(450), 0.808 + 0.009 * noise(90)
        wrong += p_apart(mine.tolist(), default.tolist(), margin=0.01) < 0.04
    print(kind, wrong)
    assert 0.025 < wrong / 3000 < 0.055


def test_what_misses_as_often_by_luck_is_no_reason() -> None:
    for a, b in (
        ((3, 90), (1, 90)),
        ((9, 90), (40, 450)),
        ((20, 90), (40, 450)),
        ((5, 12), (0, 12)),
    ):
        table = [[a[0], a[1] - a[0]], [b[0], b[1] - b[0]]]
        exact = stats.fisher_exact(table, alternative="greater").pvalue
        assert misses_more(a, b) == (exact < 0.05)
