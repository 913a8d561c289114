"""Search spaces with hyperparameters of the network's own: whole numbers, choices, conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.open_spaces import SPACE, STUDY, write_stack
from tuner.config import Hyperparameters, TrainingSettings, Value
from tuner.data.task import load_task
from tuner.errors import UsageError
from tuner.models.names import builtin_names
from tuner.search.cube import Cube
from tuner.spec.definition import StudyDefinition
from tuner.spec.ranges import ChoiceRange, IntRange
from tuner.spec.space import MIDDLE, SearchSpace
from tuner.spec.study_file import builtin_variants, load_study_file

POINTS = st.lists(st.floats(0, 1), min_size=SPACE.dimensions, max_size=SPACE.dimensions)


@given(point=POINTS)
def test_every_point_of_the_cube_is_a_configuration_and_its_place_leads_back(
    point: list[float],
) -> None:
    params = SPACE.at(point)
    assert SPACE.contains(params) == []
    assert SPACE.whole(params)
    assert SPACE.at(SPACE.shares(params)) == pytest.approx(params)
    assert SPACE.decode(SPACE.encode(params)) == pytest.approx(params)
    assert json.loads(json.dumps(params)) == params


@given(point=POINTS)
def test_what_is_not_there_has_no_value_and_tells_no_configuration_from_another(
    point: list[float],
) -> None:
    params = SPACE.at(point)
    assert ("kernel_size" in params) == (params["norm"] == "layer")
    assert ("momentum" in params) == (params["norm"] == "batch" and params["bias"] is True)
    again = SPACE.at([*point[:-3], *(1 - x for x in point[-3:])])
    if again == params:
        assert SPACE.shares(again) == SPACE.shares(params)


@given(points=st.lists(POINTS, min_size=1, max_size=5))
def test_the_cube_sees_points_where_their_configurations_are(points: list[list[float]]) -> None:
    import numpy as np

    snapped = Cube(SPACE).snapped(np.array(points))
    for row, point in zip(snapped.tolist(), points, strict=True):
        assert SPACE.at(row) == pytest.approx(SPACE.at(point))
        levels = [x for x, y in zip(row, SPACE.shares(SPACE.at(point)), strict=True) if x != y]
        assert len(levels) <= 3  # only numbers on a scale are not moved to a middle


def test_three_choices_are_as_far_from_each_other() -> None:
    r = ChoiceRange(choices=("a", "b", "c"))
    places = [r.place(each) for each in r.choices]
    assert r.coordinates == 3
    apart = {
        sum((x - y) ** 2 for x, y in zip(one, other, strict=True))
        for one in places
        for other in places
        if one != other
    }
    assert apart == {2.0}
    assert [r.at(place) for place in places] == list(r.choices)
    assert ChoiceRange(choices=(True, False)).coordinates == 1


def test_a_step_counts_from_the_low_end() -> None:
    r = IntRange(low=3, high=9, step=3)
    assert r.values() == (3, 6, 9)
    assert [r.nearest(value) for value in (0, 4, 5, 7.4, 100)] == [3, 3, 6, 6, 9]
    assert r.nearest("many") is None
    assert r.outside(4) is not None
    assert r.outside(6) is None


def test_the_space_and_its_configurations_survive_being_stored() -> None:
    again = SearchSpace.model_validate_json(json.dumps(SPACE.definition()), strict=True)
    assert again.definition() == SPACE.definition()
    params = SPACE.at([MIDDLE] * SPACE.dimensions)
    h = Hyperparameters.of(params)
    assert h.hidden_size is None
    assert h.as_dict() == params
    assert list(h.as_dict())[:3] == ["learning_rate", "weight_decay", "batch_size"]


@pytest.mark.parametrize("variant", builtin_variants())
def test_the_built_in_hyperparameters_are_described_as_ever(variant: str) -> None:
    """Or the identity of every study that is there would change."""
    described = load_study_file(variant).space.definition()
    if load_study_file(variant).model not in builtin_names():
        return
    assert list(described) == [
        "learning_rate",
        "weight_decay",
        "dropout",
        "hidden_size",
        "batch_size",
    ]
    assert set(described["learning_rate"]) == {"low", "high", "scale", "zero"}
    assert set(described["hidden_size"]) == {"low", "high"}


def test_the_nearest_configuration_takes_what_is_missing_from_the_default() -> None:
    default: dict[str, Value] = SPACE.at([0.1] * SPACE.dimensions)
    elsewhere: dict[str, Value] = {"learning_rate": 1.0, "norm": "group", "depth": 4.4, "x": 3}
    found = SPACE.nearest(elsewhere, default)
    assert SPACE.contains(found) == []
    assert (found["learning_rate"], found["depth"]) == (1e-2, 4)
    assert found["norm"] == default["norm"], "a choice has no neighbours"
    assert found["width"] == default["width"]


def test_what_does_not_belong_is_named() -> None:
    inside = SPACE.at([0.1] * SPACE.dimensions)
    assert SPACE.contains(inside | {"gain": 1.0}) == ["gain is no hyperparameter of the space"]
    without = {name: value for name, value in inside.items() if name != "depth"}
    assert SPACE.contains(without) == ["depth is missing"]
    none = {**inside, "norm": "none", "kernel_size": 3}
    assert SPACE.contains(none) == ["kernel_size is there only where norm is 'layer'"]
    assert SPACE.contains(inside | {"bias": 1}) == ["bias = 1 is none of True, False"]


WRONG = {
    "a default that is no choice, on which others depend": (
        'norm = "layer"',
        'norm = "instance"',
        "key 'defaults.norm'",
    ),
    "a misspelt built-in one": (
        "[space.learning_rate]",
        "[space.learning_rat]",
        "line 14: key 'space.learning_rat' (did you mean 'learning_rate'?) should have type",
    ),
    "no type": ('type = "int"\nlow = 1\n', "low = 1\n", "line 19: key 'space.depth'"),
    "an unknown key": (
        "low = 1\nhigh = 4",
        "lwo = 1\nhigh = 4",
        "line 21: unknown key 'space.depth.lwo' (did you mean 'low'?)",
    ),
    "a step that does not fit": ("high = 7", "high = 8", "expected e.g. 7"),
    "no power of two": ("low = 4\nhigh", "low = 5\nhigh", "low = 5 is no power of two"),
    "one choice twice": ('"batch", "none"', '"batch", "batch"', "choices hold 'batch' twice"),
    "choices of two kinds": ('"batch", "none"', '"batch", 1', "numbers and text"),
    "a condition on nothing": (
        'when = { norm = "none" }',
        'when = { nrom = "none" }',
        "line 41: key 'space.width.when.nrom': the space has no 'nrom' (did you mean 'norm'?)",
    ),
    "a condition on what is no choice": (
        'when = { norm = "none" }',
        'when = { nomr = "none", norm = "no" }',
        "space.width.when",
    ),
    "a condition that is no table": (
        'when = { norm = "none" }',
        'when = "none"',
        "line 41: key 'space.width.when' should be a table, got",
    ),
    "a value that is no choice": (
        'when = { norm = "none" }',
        'when = { norm = "nothing" }',
        "'nothing' is none of 'layer', 'batch', 'none'",
    ),
    "a condition on a conditional one": (
        'when = { norm = "none" }',
        "when = { kernel_size = 3 }",
        "kernel_size has a condition itself",
    ),
    "a condition on a number": (
        'when = { norm = "none" }',
        "when = { learning_rate = 3 }",
        "learning_rate is no choice and no whole number",
    ),
    "an empty condition": (
        'when = { norm = "none" }',
        "when = { norm = [] }",
        "names no value",
    ),
    "a default outside": (
        "depth = 2",
        "depth = 9",
        "line 9: key 'defaults.depth': depth = 9 is outside 1 to 4",
    ),
    "a default without a range": (
        "depth = 2",
        "depth = 2\ngroups = 2",
        "line 10: key 'defaults.groups': there is no [space.groups]",
    ),
    "no default": ("depth = 2\n", "", "depth is missing; the defaults are the first trial"),
    "a default that is not there": (
        'norm = "layer"\nkernel_size = 3',
        'norm = "none"\nkernel_size = 3\nwidth = 8',
        "line 11: key 'defaults.kernel_size': kernel_size is there only where norm is",
    ),
    "a default that is not there is left out": (
        'norm = "layer"\nkernel_size = 3',
        'norm = "none"\nkernel_size = 3\nwidth = 8',
        "'batch'; the defaults are the first trial, so leave it out",
    ),
    "a whole number with a point": (
        "depth = 2",
        "depth = 2.0",
        "line 9: key 'defaults.depth': depth = 2.0 has a point, and [space.depth] is of whole numb",
    ),
    "a range from high to low": (
        "low = 1\nhigh = 4",
        "low = 4\nhigh = 1",
        "line 19: key 'space.depth': low = 4 is above high = 1",
    ),
    "a file without a class": (
        'model = "stack.py:Stack"',
        'model = "stack.py"',
        "line 4: key 'model': 'stack.py' names a file and no class; say stack.py:CLASS",
    ),
    "no network of that name": (
        'model = "stack.py:Stack"',
        'model = "rsmnorm"',
        "line 4: key 'model': unknown variant 'rsmnorm' (did you mean 'rmsnorm' or",
    ),
    "no batch size": ("batch_size = 192\n", "", "missing key 'defaults.batch_size'"),
    "a searched setting": (
        "[defaults]",
        "[model_settings]\ndepth = 3\n\n[defaults]",
        "line 7: key 'model_settings.depth': depth is searched",
    ),
    "an input size on a scale": (
        'type = "choice"\nchoices = [6, 9, 12]',
        'type = "float"\nlow = 6\nhigh = 12',
        "key 'space.input_size': is no range of whole numbers",
    ),
    "no name of an argument": (
        "[space.width]",
        '[space."1 width"]',
        "'1 width' is no argument of a network",
    ),
    "a built-in network without dropout": (
        'model = "stack.py:Stack"',
        'model = "rmsnorm"',
        "defaults.dropout': is missing, and rmsnorm needs it",
    ),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_wrong_declaration_is_one_line_with_its_place_and_the_remedy(
    case: str, tmp_path: Path
) -> None:
    old, new, expected = WRONG[case]
    assert old in STUDY
    path = write_stack(tmp_path, STUDY.replace(old, new, 1))
    with pytest.raises(UsageError) as refused:
        load_study_file(str(path))
    assert expected in str(refused.value)
    assert len(str(refused.value)) < 2000
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_python_file_without_its_class_is_one_line(tmp_path: Path) -> None:
    for named in ("net.py", f"{tmp_path}/net.py"):
        with pytest.raises(UsageError, match=rf"'{named}' names a file and no class; say .*:CLASS"):
            load_study_file(named)


def test_no_input_is_longer_than_the_windows_of_the_task(tmp_path: Path) -> None:
    longer = STUDY.replace("choices = [6, 9, 12]", "choices = [6, 48]")
    file = load_study_file(str(write_stack(tmp_path, longer)))
    task = load_task("demo").definition()
    with pytest.raises(UsageError, match="holds 6 or 48; task 'demo' has input_size = 24"):
        StudyDefinition.of(file, task=task, data_hash="0" * 64, training=TrainingSettings())


def test_what_has_a_default_and_no_range_is_fixed(tmp_path: Path) -> None:
    path = write_stack(
        tmp_path, STUDY.replace("batch_size = 192", "batch_size = 192\ndropout = 0.2")
    )
    file = load_study_file(str(path))
    assert file.space.ranges["batch_size"].single
    assert file.space.ranges["dropout"].bounds() == (0.2, 0.2)
    assert file.space.ranges["weight_decay"].bounds() == (0.0, 0.0), "nobody names one: none"
    assert "hidden_size" not in file.space.ranges
    assert file.default_hyperparameters().hidden_size is None
