from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.files.toml_file import short_number, toml_key, toml_value

PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), VALUES)
def test_what_is_written_is_read_as_it_was(key: str, value: Any) -> None:
    assert tomllib.loads(f"{toml_key(key)} = {toml_value(value)}") == {key: value}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_short_number_is_the_same_number(value: float) -> None:
    assert tomllib.loads(f"a = {short_number(value)}") == {"a": value}


@pytest.mark.parametrize(
    ("value", "text"), [(1e-4, "1e-4"), (0.0, "0.0"), (0.25, "0.25"), (3e-5, "3e-5"), (2.0, "2.0")]
)
def test_small_numbers_are_written_with_an_exponent(value: float, text: str) -> None:
    assert short_number(value) == text


def test_a_list_with_a_null_has_no_toml() -> None:
    with pytest.raises(ValueError, match="a list holds a null"):
        toml_value([1, None])
