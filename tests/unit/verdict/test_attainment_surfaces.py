"""What whole searches attain: surfaces and regions that are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.pareto import Point, front_indices
from tuner.spec.membership import Membership
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.attainment_surfaces import (
    Attained,
    attained_by,
    differences,
    front_of_search,
    surfaces,
)
from tuner.verdict.compare.studies import read_studies

CAMPAIGN = Path(__file__).parents[3] / "benchmarks" / "campaign"
STAIRS: list[list[Point]] = [
    [(1.0, 4.0), (3.0, 2.0)],
    [(2.0, 3.0), (4.0, 1.0)],
    [(2.0, 5.0), (3.0, 3.0)],
]
GRID = st.integers(1, 6).map(float)
FRONTS = st.lists(
    st.lists(st.tuples(GRID, GRID), min_size=1, max_size=5).map(
        lambda points: [points[i] for i in front_indices(points)]
    ),
    min_size=1,
    max_size=4,
)


def attains(front: list[Point], point: Point) -> bool:
    return any(x <= point[0] and y <= point[1] for x, y in front)


def share(fronts: list[list[Point]], point: Point) -> float:
    return sum(attains(front, point) for front in fronts) / len(fronts)


def test_best_median_and_worst_of_three_staircases() -> None:
    best, median, worst = surfaces(STAIRS)
    assert best.corners == ((1.0, 4.0), (2.0, 3.0), (3.0, 2.0), (4.0, 1.0))
    assert median.corners == ((2.0, 4.0), (3.0, 3.0), (4.0, 2.0))
    assert worst.corners == ((2.0, 5.0), (3.0, 3.0))
    assert [each.searches for each in (best, median, worst)] == [1, 2, 3]


def test_of_one_search_the_surface_is_its_front() -> None:
    (only,) = surfaces(STAIRS[:1])
    assert list(only.corners) == STAIRS[0]


@given(FRONTS)
def test_a_surface_bounds_what_so_many_searches_attain(fronts: list[list[Point]]) -> None:
    found = surfaces(fronts)
    for x in range(8):
        for y in range(8):
            point = (x + 0.5, y + 0.5)
            by = round(share(fronts, point) * len(fronts))
            on = [each.searches for each in found if attains(list(each.corners), point)]
            assert on == list(range(1, by + 1))


def test_regions_of_two_searches_against_two() -> None:
    ahead: list[list[Point]] = [[(1.0, 1.0)], [(1.0, 1.0)]]
    behind: list[list[Point]] = [[(2.0, 2.0)], [(1.0, 1.0)]]
    found = differences(ahead, behind)
    assert {each.difference for each in found} == {0.5}
    assert differences(ahead, ahead) == ()
    assert {each.difference for each in differences(behind, ahead)} == {-0.5}


@given(FRONTS, FRONTS)
def test_a_region_has_the_difference_of_the_shares_however_many_searches_each_has(
    first: list[list[Point]], second: list[list[Point]]
) -> None:
    found = differences(first, second)
    for x in range(8):
        for y in range(8):
            point = (x + 0.5, y + 0.5)
            there = [
                each.difference
                for each in found
                if each.low[0] <= point[0] < each.high[0] and each.low[1] <= point[1] < each.high[1]
            ]
            expected = share(first, point) - share(second, point)
            assert sum(there) == pytest.approx(expected)
            assert len(there) == (abs(expected) > 1e-9)


# -- of studies ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original() -> StudySnapshot:
    (found,) = read_studies(
        [str(CAMPAIGN / "etth-original.json.gz")], task="etth", storage="sqlite:///none.db"
    )
    return found


def first_trials(study: StudySnapshot, count: int) -> StudySnapshot:
    results = dataclasses.replace(study.results, records=study.results.records[:count])
    return dataclasses.replace(study, results=results, read_runs=lambda: ())


def group_of(study: StudySnapshot, *sizes: int) -> list[StudySnapshot]:
    found = []
    for number, size in enumerate(sizes, start=1):
        place = Membership(group="etth-original", search=number)
        some = first_trials(study, size)
        found.append(dataclasses.replace(some, name=f"etth-original-{number}", membership=place))
    return found


def notes(found: Attained) -> str:
    return "\n".join(found.notes)


def test_few_trials_have_the_front_of_single_runs_and_the_figure_says_so(
    original: StudySnapshot,
) -> None:
    few = first_trials(original, 8)
    front = front_of_search(few)
    assert front is not None
    assert not front.expected
    assert list(front.points) == [each.values for each in few.results.front]
    found = attained_by([few])
    assert "Of single runs, which look luckier than they are" in notes(found)
    assert "One search is one draw" in notes(found)


def test_a_group_has_a_surface_for_each_number_of_its_searches(original: StudySnapshot) -> None:
    found = attained_by(group_of(original, 20, 25, 30))
    (group,) = found.groups
    assert group.name == "etth-original"
    assert [each.searches for each in group.surfaces] == [1, 2, 3]
    assert (group.best.searches, group.median.searches, group.worst.searches) == (1, 2, 3)
    assert all(front.expected for front in group.fronts)
    assert found.notes == ()
    assert found.regions == ()


def test_of_two_searches_the_best_attains_what_half_of_them_do(original: StudySnapshot) -> None:
    (group,) = attained_by(group_of(original, 20, 25)).groups
    assert group.median is group.best


def test_a_search_of_which_nothing_converged_is_left_out_and_named(
    original: StudySnapshot,
) -> None:
    found = attained_by(group_of(original, 20, 0))
    assert [len(group.fronts) for group in found.groups] == [1]
    assert "Left out, for nothing converged: etth-original-2." in found.notes
    nothing = attained_by(group_of(original, 0))
    assert nothing.groups == ()
    assert attained_by([]).groups == ()


def test_other_data_other_objectives_and_other_devices(original: StudySnapshot) -> None:
    few = first_trials(original, 20)
    definition = dataclasses.replace(few.definition, data_hash="other")
    place = Membership(group="other", search=1)
    other = dataclasses.replace(few, name="other", membership=place, definition=definition)
    with pytest.raises(UsageError, match="on different data"):
        attained_by([few, other])
    objectives = ("wall_clock_s", "val_mql")
    definition = dataclasses.replace(few.definition, objectives=objectives)
    other = dataclasses.replace(other, definition=definition)
    with pytest.raises(UsageError, match="minimises wall_clock_s and test_mql, and 'other' wall"):
        attained_by([few, other])
    other = dataclasses.replace(other, definition=few.definition, device_model="Example GPU")
    assert "Times do not compare: they are of NVIDIA H200 and of Example GPU." in notes(
        attained_by([few, other])
    )
