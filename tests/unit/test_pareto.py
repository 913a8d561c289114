"""Fronts, knees and hypervolumes of two minimised objectives, against hand computations."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.spec.pareto import Point, front_indices, hypervolume, knee_index, reference_point

finite = st.floats(0.0, 1e6)
points = st.lists(st.tuples(finite, finite), min_size=1, max_size=40)
few = st.integers(0, 5)  # many ties
coarse = st.lists(st.tuples(few, few), min_size=1, max_size=40)


def dominates(a: Point, b: Point) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b


def test_the_front_is_what_nothing_dominates_fastest_first() -> None:
    #              dominated   front       front       dominated   front
    assert front_indices([(4.0, 4.0), (5.0, 1.0), (1.0, 5.0), (6.0, 2.0), (2.0, 3.0)]) == [2, 4, 1]


def test_a_tie_in_one_objective_leaves_the_better_of_the_other() -> None:
    assert front_indices([(1.0, 3.0), (1.0, 2.0)]) == [1]
    assert front_indices([(1.0, 2.0), (3.0, 2.0)]) == [0]


def test_of_equal_points_the_first_is_kept() -> None:
    assert front_indices([(2.0, 2.0), (1.0, 3.0), (2.0, 2.0), (1.0, 3.0)]) == [1, 0]


def test_the_front_of_nothing_is_empty() -> None:
    assert front_indices([]) == []


def test_an_infinite_value_is_never_on_the_front_beside_a_finite_one() -> None:
    assert front_indices([(1.0, math.inf), (2.0, 1.0)]) == [1]


@given(points | coarse)
def test_no_front_point_is_dominated_and_every_other_point_is_or_equals_one(
    some: list[Point],
) -> None:
    front = [some[i] for i in front_indices(some)]
    assert not any(dominates(a, b) for a in some for b in front)
    assert all(any(dominates(f, p) or f == p for f in front) for p in some)


@given(points | coarse)
def test_a_front_rises_in_the_first_objective_and_falls_in_the_second(some: list[Point]) -> None:
    front = [some[i] for i in front_indices(some)]
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(front))


def test_the_knee_gives_most_of_both() -> None:
    # Scaled to 0..1 the distances from the ideal point are 1, 0.36, 1.
    assert knee_index([(10.0, 0.9), (40.0, 0.62), (110.0, 0.5)]) == 1


def test_the_knee_does_not_depend_on_the_units() -> None:
    # Scaled to 0..1 the distances from the ideal point are 1, 0.757, 0.501, 1.
    front = [(10.0, 0.9), (20.0, 0.8), (60.0, 0.51), (110.0, 0.5)]
    assert knee_index(front) == knee_index([(s / 3600, q * 1000) for s, q in front]) == 2


@pytest.mark.parametrize("front", [[(3.0, 4.0)], [(3.0, 4.0), (3.0, 4.0)]])
def test_the_knee_of_one_point_is_that_point(front: list[Point]) -> None:
    assert knee_index(front) == 0


def test_the_knee_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        knee_index([])


def test_the_hypervolume_of_a_staircase_is_its_area() -> None:
    # Below (10, 10): 9x2 of (1, 8), and what (4, 3) and (7, 1) add below it: 6x5 and 3x2.
    assert hypervolume([(1.0, 8.0), (4.0, 3.0), (7.0, 1.0)], (10.0, 10.0)) == pytest.approx(
        18 + 30 + 6
    )


def test_points_at_or_beyond_the_reference_add_nothing() -> None:
    inside = [(1.0, 8.0), (4.0, 3.0)]
    beyond = [(10.0, 0.0), (0.0, 10.0), (11.0, 1.0), (math.inf, 0.0)]
    assert hypervolume(inside + beyond, (10.0, 10.0)) == pytest.approx(
        hypervolume(inside, (10.0, 10.0))
    )
    assert hypervolume(beyond, (10.0, 10.0)) == 0.0
    assert hypervolume([], (10.0, 10.0)) == 0.0


@given(coarse)
def test_only_the_front_makes_the_hypervolume(some: list[Point]) -> None:
    reference = (6.0, 6.0)
    front = [some[i] for i in front_indices(some)]
    cells = sum(any(p[0] <= x and p[1] <= y for p in some) for x in range(6) for y in range(6))
    assert (
        hypervolume(some, reference)
        == pytest.approx(hypervolume(front, reference))
        == pytest.approx(cells)
    )


def test_the_reference_is_a_tenth_beyond_the_worst_of_each() -> None:
    assert reference_point([(1.0, 8.0), (20.0, 3.0)]) == pytest.approx((22.0, 8.8))
