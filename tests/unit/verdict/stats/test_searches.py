"""Variants held against each other by whole searches."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tuner.verdict.stats.searches import (
    NOT_REACHED,
    RETUNE_LEVEL,
    Between,
    compare_searches,
    compare_with_reference,
    least_p,
    least_searches,
)

TIMES = st.one_of(st.floats(0.05, 20.0), st.sampled_from([0.5, 1.0, 2.0]), st.just(NOT_REACHED))
SEARCHES = st.lists(TIMES, min_size=1, max_size=6)
LEVELS = st.sampled_from([0.5, 0.1, RETUNE_LEVEL])


def enumerated_p(a: list[float], b: list[float]) -> float:
    """Two-sided, by all ways to deal the labels; midranks."""
    pooled = np.array([*a, *b])
    ranks = stats.rankdata(pooled)
    seen = ranks[: len(a)].sum()
    sums = np.array(
        [ranks[list(c)].sum() for c in itertools.combinations(range(len(pooled)), len(a))]
    )
    return float(min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean())))


def test_all_of_one_before_all_of_the_other_is_the_least_p() -> None:
    found = compare_searches([1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 2.4])
    assert found.p == pytest.approx(2 / 252)
    assert found.claimed
    assert found.high < 1
    assert found.ratio == pytest.approx(1.2 / 2.2, rel=0.01)


def test_a_shift_is_found_as_it_was_planted() -> None:
    b = [1.0, 1.13, 1.31, 1.52, 1.77, 2.0]
    found = compare_searches([1.5 * t for t in b], b)
    assert found.ratio == pytest.approx(1.5)
    assert found.low <= 1.5 <= found.high


def test_known_interval_of_five_searches() -> None:
    # At 2 %, two-sided, five of each: U may be 0 or 1 (2/252 and 4/252), so the second difference
    # from each end is where the interval ends.
    a, b = [1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 5.0, 7.0, 11.0, 13.0]
    ratios = sorted(x / y for x in a for y in b)
    found = compare_searches(a, b, level=0.02)
    assert [found.low, found.high] == pytest.approx([ratios[1], ratios[-2]])
    assert not found.claimed


@given(st.lists(st.integers(5, 2000), min_size=2, max_size=12, unique=True), st.data())
def test_p_is_that_of_scipy_without_ties(hundredths: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(hundredths) - 1))
    times = [t / 100 for t in hundredths]
    a, b = times[:size], times[size:]
    exact = stats.mannwhitneyu(a, b, alternative="two-sided", method="exact").pvalue
    assert compare_searches(a, b).p == pytest.approx(exact)


@given(st.lists(TIMES, min_size=1, max_size=5), st.lists(TIMES, min_size=1, max_size=5))
def test_p_is_that_of_all_deals_where_ties_are_only_of_what_was_not_reached(
    a: list[float], b: list[float]
) -> None:
    reached = [round(math.log(t), 9) for t in (*a, *b) if math.isfinite(t)]
    p = compare_searches(a, b).p
    if len(set(reached)) == len(reached):
        assert p == pytest.approx(enumerated_p(a, b))
    assert 0 < p <= 1


@settings(max_examples=100)
@given(SEARCHES, SEARCHES, LEVELS)
def test_a_claim_is_where_the_interval_leaves_out_one_and_p_is_small(
    a: list[float], b: list[float], level: float
) -> None:
    found = compare_searches(a, b, level=level)
    assert found.claimed == (found.p <= level)
    assert found.claimed == (not found.low <= 1 <= found.high)
    assert found.low <= found.high
    if found.claimed:
        assert found.possible


@settings(max_examples=100)
@given(SEARCHES, SEARCHES, LEVELS)
def test_exchanged_labels_turn_the_answer_around(
    a: list[float], b: list[float], level: float
) -> None:
    one = compare_searches(a, b, level=level)
    other = compare_searches(b, a, level=level)
    assert other.p == pytest.approx(one.p)
    assert _inverse(other) == pytest.approx((one.low, one.high), rel=1e-9)
    if one.ratio is None:
        assert other.ratio is None
    else:
        assert other.ratio is not None
        assert other.ratio == pytest.approx(_over(one.ratio))


def _inverse(found: Between) -> tuple[float, float]:
    return _over(found.high), _over(found.low)


def _over(value: float) -> float:
    return math.inf if value == 0 else 1 / value


@given(SEARCHES, SEARCHES)
def test_the_estimate_lies_in_the_interval(a: list[float], b: list[float]) -> None:
    found = compare_searches(a, b)
    if found.ratio is not None:
        assert found.low * (1 - 1e-9) <= found.ratio <= found.high * (1 + 1e-9)


def test_what_was_not_reached_ranks_last() -> None:
    reached, not_reached = [1.0, 2.0, 3.0, 4.0, 5.0], [NOT_REACHED] * 5
    found = compare_searches(reached, not_reached)
    assert found.claimed
    assert (found.ratio, found.low, found.high) == (0.0, 0.0, 0.0)
    assert found.reached == (5, 0)
    slow = compare_searches(reached, [1e9] * 5)
    assert slow.p == pytest.approx(found.p)


def test_nobody_reached_says_nothing() -> None:
    found = compare_searches([NOT_REACHED] * 5, [NOT_REACHED] * 5)
    assert found.ratio is None
    assert (found.low, found.high, found.p) == (0.0, math.inf, 1.0)
    assert not found.claimed


def test_few_searches_can_claim_nothing() -> None:
    assert [least_searches(comparisons) for comparisons in (1, 4, 8)] == [5, 5, 6]
    assert least_p(4, 4) == pytest.approx(2 / 70)
    found = compare_searches([1.0] * 4, [9.0] * 4)
    assert not found.possible
    assert not found.claimed
    assert not compare_searches([1.0], [9.0]).claimed


def test_a_variant_needs_a_search() -> None:
    with pytest.raises(ValueError, match="needs a search"):
        compare_searches([], [1.0])


def test_registered_comparisons_share_the_chance_of_a_false_claim() -> None:
    reference = [1.0, 1.1, 1.2, 1.3, 1.4]
    apart, near = [t / 3 for t in reference], [t * 1.01 for t in reference]
    # 4/252 = 0.0159: enough for one comparison, not for the first of four.
    almost = [2.0, 2.1, 2.2, 2.3, 1.35]
    alone = compare_with_reference("r", {"r": reference, "x": almost})
    assert [each.claimed for each in alone] == [True]
    first = compare_with_reference(
        "r", {"r": reference, "x": almost, "y": near, "z": near, "w": near}
    )
    assert [each.claimed for each in first] == [False] * 4
    assert {each.level for each in first} == {0.0125}
    found = compare_with_reference(
        "r", {"a": almost, "r": reference, "b": apart, "c": near, "d": near}
    )
    assert [each.a for each in found] == ["a", "b", "c", "d"]
    assert [each.claimed for each in found] == [True, True, False, False]
    assert [each.level for each in found] == pytest.approx([0.05 / 3, 0.0125, 0.02, 0.02])


def test_twenty_searches_each_take_no_time() -> None:
    random = np.random.default_rng(1)
    a, b = (np.exp(0.2 * random.standard_normal(20)).tolist() for _ in range(2))
    exact = stats.mannwhitneyu(a, b, alternative="two-sided", method="exact").pvalue
    assert compare_searches(a, b).p == pytest.approx(exact)
