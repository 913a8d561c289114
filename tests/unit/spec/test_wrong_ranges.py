"""Ranges that a file declares, and that no sampler could draw from: one line each."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution
from pydantic import ValidationError

from tests.support.open_spaces import STUDY, write_stack
from tuner.errors import UsageError
from tuner.spec.ranges import SAFE_LOW, ChoiceRange, FloatRange
from tuner.spec.study_file import load_study_file

WRONG = {
    "a type that is a list": (
        'type = "int"\nlow = 1\n',
        'type = ["int"]\nlow = 1\n',
        'key \'space.depth\' should have type = "float", "int" or "choice"',
    ),
    "a type that is a table": (
        'type = "int"\nlow = 1\n',
        "type = { int = 1 }\nlow = 1\n",
        'key \'space.depth\' should have type = "float", "int" or "choice"',
    ),
    "a logarithm of hardly anything": (
        "low = 1\nhigh = 4",
        'low = 1e-320\nhigh = 4\nscale = "log"',
        "low = 9.99989e-321 is too small for a log range; expected 1e-200 or more",
    ),
    "a zero below hardly anything": (
        "low = 1\nhigh = 4",
        'low = 1e-300\nhigh = 1e30\nscale = "log"\nzero = true',
        "low = 1e-300 is too small for a log range with zero = true; expected 1e-200 or more",
    ),
    "a choice that would be no whole number": (
        'type = "int"\nlow = 1\nhigh = 4',
        'type = "choice"\nchoices = [1, 2147483648]',
        "2147483648 is too large for a whole number; expected 1073741824 at most, or a number",
    ),
    "a condition on itself": (
        'when = { norm = "none" }',
        "when = { width = 8 }",
        "line 41: key 'space.width.when.width': width cannot depend on itself; name another, or no",
    ),
    "a name that no database takes": (
        "[space.width]",
        f"[space.{'w' * 513}]",
        "has a name of 513 characters; expected at most 512, which is what databases take",
    ),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_it_is_one_line_with_its_place_and_the_remedy(case: str, tmp_path: Path) -> None:
    old, new, expected = WRONG[case]
    assert old in STUDY
    text = STUDY.replace(old, new, 1)
    if "scale" in new:
        text = text.replace('[space.depth]\ntype = "int"', '[space.depth]\ntype = "float"')
    path = write_stack(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        load_study_file(str(path))
    said = str(refused.value)
    assert said.startswith(f"{path}, line ")
    assert len(said) < 2000
    assert expected in said
    assert "\n" not in said


@pytest.mark.parametrize("high", [1e-199, 1.0, 1e30])
def test_from_a_safe_low_on_a_sampler_can_draw_zero(high: float) -> None:
    drawn = FloatRange(low=SAFE_LOW, high=high, scale="log", zero=True)
    encoded = drawn.encoded()
    assert isinstance(encoded, FloatDistribution)
    assert 0 < encoded.low < SAFE_LOW
    assert drawn.decode(drawn.encode(0.0)) == 0.0
    assert drawn.decode(drawn.at([0.0])) == 0.0
    assert math.isclose(float(drawn.decode(drawn.at([1.0]))), high)


def test_a_large_choice_with_a_point_stays_what_it_is() -> None:
    assert ChoiceRange(choices=(1, 2147483648.0)).choices == (1, 2147483648.0)
    with pytest.raises(ValidationError, match="-4000000000 is too large for a whole number"):
        ChoiceRange.model_validate({"choices": [1, -4000000000]})
