"""The search space: two faces of the same values, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import ValidationError

from tuner.config import Hyperparameters
from tuner.spec.ranges import ZERO_SHARE, FloatRange, SizeRange, held
from tuner.spec.space import SearchSpace
from tuner.spec.study_file import builtin_variants, load_study_file

SPACE = load_study_file("rmsnorm").space


@st.composite
def log_ranges(draw: st.DrawFn, *, zero: bool) -> FloatRange:
    low, high = sorted(10.0**x for x in draw(st.tuples(st.floats(-8, 2), st.floats(-8, 2))))
    assume(high > low * 1.001)
    return FloatRange(low=low, high=high, scale="log", zero=zero)


@given(data=st.data(), r=log_ranges(zero=True))
def test_a_log_range_with_zero_goes_there_and_back(data: st.DataObject, r: FloatRange) -> None:
    value = data.draw(st.one_of(st.just(0.0), st.floats(r.low, r.high)))
    encoded = r.encode(value)
    assert r.encoded()._contains(float(encoded))
    assert r.decode(encoded) == value
    in_tables = float(held(value, r.stored()))
    assert r.stored()._contains(in_tables)
    assert r.true(in_tables) == value == r.true(value)


@given(data=st.data(), r=log_ranges(zero=False))
def test_a_log_range_without_zero_goes_there_and_back(data: st.DataObject, r: FloatRange) -> None:
    value = data.draw(st.floats(r.low, r.high))
    assert r.decode(r.encode(value)) == value
    assert r.stored() == r.encoded() == FloatDistribution(r.low, r.high, log=True)


@given(data=st.data(), low=st.integers(0, 12), steps=st.integers(0, 6))
def test_a_size_is_a_power_of_two_searched_by_its_exponent(
    data: st.DataObject, low: int, steps: int
) -> None:
    r = SizeRange(low=1 << low, high=1 << (low + steps))
    exponent = data.draw(st.integers(low, low + steps))
    assert r.encoded() == IntDistribution(low, low + steps)
    assert r.decode(exponent) == 1 << exponent
    assert r.encode(r.decode(exponent)) == exponent
    assert r.stored() == CategoricalDistribution([1 << e for e in range(low, low + steps + 1)])


@given(data=st.data(), r=log_ranges(zero=True))
def test_every_encoded_value_means_a_stored_one(data: st.DataObject, r: FloatRange) -> None:
    encoded = r.encoded()
    assert isinstance(encoded, FloatDistribution)
    decoded = float(r.decode(data.draw(st.floats(encoded.low, encoded.high))))
    assert decoded == 0.0 or r.low <= decoded <= r.high


def test_zero_has_its_share_of_the_encoded_range() -> None:
    r = FloatRange(low=1e-6, high=1e-1, scale="log", zero=True)
    encoded = r.encoded()
    assert isinstance(encoded, FloatDistribution)
    below = math.log(r.low) - math.log(encoded.low)
    assert below / (math.log(encoded.high) - math.log(encoded.low)) == pytest.approx(ZERO_SHARE)


@pytest.mark.parametrize("variant", builtin_variants())
def test_the_defaults_of_every_variant_survive_both_faces(variant: str) -> None:
    file = load_study_file(variant)
    defaults = file.default_hyperparameters()
    assert defaults.weight_decay == 0.0
    assert file.space.contains(defaults.as_dict()) == []
    assert Hyperparameters.of(file.space.decode(file.space.encode(defaults.as_dict()))) == defaults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 1.0),
        ("weight_decay", 1e-9),
        ("dropout", 0.6),
        ("hidden_size", 512),
        ("hidden_size", 48),
        ("batch_size", 1),
    ],
)
def test_what_lies_outside_is_named(name: str, value: float) -> None:
    inside = load_study_file("rmsnorm").default_hyperparameters().as_dict()
    (phrase,) = SPACE.contains(inside | {name: value})
    assert phrase.startswith(f"{name} = ")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"learning_rate": {"low": 1e-2, "high": 1e-3}}, "swap"),
        (
            {"learning_rate": {"low": 0.0, "high": 1e-3, "scale": "log"}},
            "log range cannot start at 0",
        ),
        ({"learning_rate": {"low": 0.0, "high": 1e-3}}, "above 0"),
        ({"weight_decay": {"low": 0.0, "high": 1e-3, "zero": True}}, "linear range"),
        ({"weight_decay": {"low": -1.0, "high": 1e-3}}, "0 or more"),
        ({"dropout": {"low": 0.0, "high": 1.0}}, "dropout"),
        ({"hidden_size": {"low": 32, "high": 100}}, "power of two"),
        ({"hidden_size": {"low": 0, "high": 64}}, "greater than 0"),
        ({"batch_size": {"low": 64, "high": 32}}, "swap"),
        ({"dropout": {"low": 0.0, "high": math.nan}}, "finite"),
        ({"momentum": {"low": 0.0, "high": 1.0}}, "momentum"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SearchSpace.model_validate(SPACE.model_dump() | change)
    assert word in str(refused.value)


def test_the_reasons_are_no_part_of_the_definition() -> None:
    plain = SPACE.model_dump()
    plain["dropout"]["reason"] = "another one"
    assert SearchSpace.model_validate(plain).definition() == SPACE.definition()
