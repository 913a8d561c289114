"""Who is in which cell around whom, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.errors import UsageError
from tuner.models.social_xlstm.detector_networks import (
    neighbour_cells,
    pooling_in_words,
    usual_distance,
)

ROAD = [(0.0, 0.0), (100.0, 0.0), (200.0, 0.0), (300.0, 0.0), (400.0, 0.0)]


def test_a_straight_road_has_one_cell_for_each_side_and_ring() -> None:
    table = neighbour_cells(ROAD, radius=2, grid=4)
    assert table.shape == (5, 4, 5)  # of 16 cells, the four along the road
    around_the_middle = [list(np.flatnonzero(cell)) for cell in table[2]]
    assert around_the_middle == [[0], [1], [3], [4]]
    assert [list(np.flatnonzero(cell)) for cell in table[0]] == [[], [], [1], [2]]


def test_nobody_is_his_own_neighbour_and_each_neighbour_is_in_one_cell() -> None:
    random = np.random.default_rng(0)
    places = random.uniform(0, 10, (20, 2))
    table = neighbour_cells([(x, y) for x, y in places], radius=3, grid=4)
    reach = 3 * usual_distance(places)
    near = (np.abs(places[:, None] - places[None]) <= reach).all(-1) & ~np.eye(20, dtype=bool)
    assert (table.sum(axis=1) == near).all()
    assert (table.sum(axis=(0, 2)) > 0).all()


def test_a_cell_is_where_it_is_said_to_be() -> None:
    places = [(0.0, 0.0), (1.0, 0.1), (-1.0, 0.1), (0.1, 1.0), (0.1, -1.0)]
    table = neighbour_cells(places, radius=2, grid=2)
    quadrants = [set(np.flatnonzero(cell)) for cell in table[0]]
    assert quadrants == [set(), {2}, {4}, {1, 3}]


@pytest.mark.parametrize("unit", [0.1, 1 / 30.48, 1 / 7, 1e6 / 3])
def test_units_of_length_do_not_matter_nor_do_the_last_digits_of_an_edge(unit: float) -> None:
    plain = neighbour_cells([(float(n), 0.0) for n in range(12)], radius=3, grid=6)
    other = neighbour_cells([(n * unit, 0.0) for n in range(12)], radius=3, grid=6)
    assert plain.shape == other.shape == (12, 6, 12)
    assert (plain == other).all()


def test_detectors_at_one_place_count_as_neighbours_but_not_for_the_usual_distance() -> None:
    both_ways = [(0.0, 0.0), (0.0, 0.0), (100.0, 0.0), (100.0, 0.0)]
    assert usual_distance(np.asarray(both_ways)) == 100.0
    table = neighbour_cells(both_ways, radius=1, grid=2)
    assert (table.sum(axis=1) == 1 - np.eye(4)).all()


def test_all_at_one_place_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="are all at one; correct its positions") as caught:
        neighbour_cells([(1.0, 1.0)] * 3, radius=2, grid=2)
    assert "\n" not in str(caught.value)


def test_more_detectors_than_a_table_of_pairs_can_have_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"at most 4,096 detectors, and the task has 5,000; split"):
        neighbour_cells([(float(n), 0.0) for n in range(5000)], radius=2, grid=2)


def test_over_how_many_others_a_detector_pools_is_said() -> None:
    road = [(float(n), 0.0) for n in range(9)]
    assert pooling_in_words(road, 2.0) == (
        "a detector pools over 2 to 4 others, 4 in the median: those within 2 times 1, the usual "
        "distance to the next one"
    )
    carriageways = [(x, y) for x, _ in road for y in (0.0, 0.02)]
    said = pooling_in_words(carriageways, 2.0)
    assert said.startswith("a detector pools over 1 to 1 others, 1 in the median: those within 2 ")
    assert "two carriageways, that distance is one within a pair, and pool_radius has to be" in said
    assert "carriageways" not in pooling_in_words(carriageways, 60.0)
