from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tuner.errors import UsageError
from tuner.files.toml_file import read_toml, validate


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FloatRange(Closed):
    type: Literal["float"]
    low: float
    high: float
    reason: str = ""


class Choice(Closed):
    type: Literal["choice"]
    values: tuple[int, ...]


class Study(Closed):
    variant: str
    space: dict[str, Annotated[FloatRange | Choice, Field(discriminator="type")]]
    trials: int = Field(default=10, ge=1)
    extra: tuple[FloatRange, ...] = ()


STUDY = """\
# a study
variant = "rmsnorm"

[space.dropout]
type = "float"
low = 0.0
hihg = 0.5
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problem(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(UsageError) as caught:
        validate(read_toml(path), Study)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def test_a_valid_file_becomes_a_model(tmp_path: Path) -> None:
    study = validate(read_toml(write(tmp_path, STUDY.replace("hihg", "high"))), Study)
    assert study.space["dropout"] == FloatRange(type="float", low=0.0, high=0.5)


def test_an_unknown_key_is_named_with_its_line_and_the_known_keys(tmp_path: Path) -> None:
    assert problem(tmp_path, STUDY) == (
        "my.toml, line 7: unknown key 'space.dropout.hihg' (did you mean 'high'?); "
        "expected one of: high, low, reason, type"
    )


def test_an_unknown_key_at_the_top_is_named(tmp_path: Path) -> None:
    message = problem(tmp_path, "trails = 3\n" + STUDY.replace("hihg", "high"))
    assert message == (
        "my.toml, line 1: unknown key 'trails' (did you mean 'trials'?); "
        "expected one of: extra, space, trials, variant"
    )


def test_a_missing_key_is_named_with_the_line_of_its_table(tmp_path: Path) -> None:
    message = problem(tmp_path, STUDY.replace("hihg = 0.5", ""))
    assert message == "my.toml, line 4: missing key 'space.dropout.high'; add it"


def test_a_wrong_type_is_named_with_what_was_given(tmp_path: Path) -> None:
    message = problem(tmp_path, STUDY.replace("hihg = 0.5", 'high = "0.5"'))
    assert (
        message == "my.toml, line 7: key 'space.dropout.high' should be a valid number, got \"0.5\""
    )


def test_a_number_out_of_bounds_is_named(tmp_path: Path) -> None:
    message = problem(tmp_path, "trials = 0\n" + STUDY.replace("hihg", "high"))
    assert message == "my.toml, line 1: key 'trials' should be greater than or equal to 1, got 0"


def test_true_is_no_number(tmp_path: Path) -> None:
    assert "'trials' should be a valid integer" in problem(
        tmp_path, "trials = true\n" + STUDY.replace("hihg", "high")
    )


def test_an_unknown_kind_lists_the_known_ones(tmp_path: Path) -> None:
    message = problem(tmp_path, STUDY.replace('"float"', '"flaot"'))
    assert message == (
        "my.toml, line 5: key 'space.dropout.type' is 'flaot'; expected one of: 'float', 'choice'"
    )


def test_a_missing_kind_is_named(tmp_path: Path) -> None:
    message = problem(tmp_path, STUDY.replace('type = "float"\n', ""))
    assert message == "my.toml, line 4: missing key 'space.dropout.type'; add it"


def test_an_element_of_an_array_of_tables_is_named_by_its_own_line(tmp_path: Path) -> None:
    extra = '\n[[extra]]\ntype = "float"\nlow = 0\nhigh = 1\n'
    tail = f"{extra}{extra}hihg = 1\n"
    message = problem(tmp_path, STUDY.replace("hihg", "high") + tail)
    assert message.startswith("my.toml, line 18: unknown key 'extra.1.hihg' (did you mean 'high'?)")


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, 'variant = "rmsnorm"\ntrials = = 3\n')
    with pytest.raises(UsageError, match=r"my\.toml, line 2: is not valid TOML: invalid value$"):
        read_toml(path)


def test_a_key_given_twice_is_a_syntax_error_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "trials = 1\ntrials = 2\n")
    with pytest.raises(
        UsageError, match=r"my\.toml, line 2: is not valid TOML: cannot overwrite a value$"
    ):
        read_toml(path)


def test_text_that_breaks_off_is_named_with_the_last_line(tmp_path: Path) -> None:
    path = write(tmp_path, "trials = 1\nvariant = [\n")
    with pytest.raises(UsageError, match=r"my\.toml, line 2: is not valid TOML: "):
        read_toml(path)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: no such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="is a folder"):
        read_toml(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(UsageError, match=r"binary\.toml, line 2: is not UTF-8 text"):
        read_toml(binary)


def test_the_line_of_every_kind_of_key_is_found(tmp_path: Path) -> None:
    text = '''\
a = 1 # one = 1
"b c" = """
x = 2
"""
d.e = [ # not = "this"
  1,
  { f = "]", g = 'h = "' },
]

[t."u.v"]  # [no.table]
date = 1979-05-27 07:32:00
w = { x = { y = 1 } }
[[s]]
k = 1
[[s]]
[s.deep]
k = """a"b\\""""
last = -1e3
'''
    document = read_toml(write(tmp_path, text))
    expected = {
        ("a",): 1,
        ("b c",): 2,
        ("d", "e"): 5,
        ("d", "e", "0"): 6,
        ("d", "e", "1", "g"): 7,
        ("t", "u.v"): 10,
        ("t", "u.v", "date"): 11,
        ("t", "u.v", "w", "x", "y"): 12,
        ("s", "0", "k"): 14,
        ("s", "1"): 15,
        ("s", "1", "deep"): 16,
        ("s", "1", "deep", "k"): 17,
        ("s", "1", "deep", "last"): 18,
        ("x",): None,
        ("one",): None,
        ("h",): None,
    }
    assert {key: document.line(key) for key in expected} == expected


def test_windows_line_endings_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    document = read_toml(path)
    assert document.data == {"a": 1, "b": 2}
    assert document.line(("b",)) == 2
