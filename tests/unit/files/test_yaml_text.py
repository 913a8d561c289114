from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuner.files.yaml_text import yaml_text

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9._/-]{0,8}", fullmatch=True)
SCALARS = st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]))
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12
)


@given(DATA)
def test_what_is_written_is_read_again(data: Any) -> None:
    text = yaml_text(data)
    assert yaml.safe_load(text) == data
    assert text.isascii()


@pytest.mark.parametrize(
    "text",
    ["1e3", "on", "null", "~", "0o14", "a: b", "- a", "---", "a\n---\nb", "\u2028", "!x", "#"],
)
def test_each_text_stays_one_in_quotes(text: str) -> None:
    written = yaml_text({"key": text})
    assert written.startswith('key: "')
    assert written.endswith('"\n')
    assert len(written.splitlines()) == 1


@pytest.mark.parametrize("key", ["NO", "yes", "On", "off", "true", "Null", "y", "N", "none"])
def test_a_key_that_is_a_word_of_yaml_stays_a_text(key: str) -> None:
    assert yaml.safe_load(yaml_text({key: 1})) == {key: 1}


def test_a_key_that_would_need_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match="is no key"):
        yaml_text({"a: b": 1})
    with pytest.raises(ValueError, match="surrogate"):
        yaml_text("\ud800")
