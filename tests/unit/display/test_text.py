"""Text from outside: whatever it holds, where it is shown it is text."""

from __future__ import annotations

import html
import subprocess
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.display.text import (
    command_line,
    in_code,
    in_html,
    in_markdown,
    option,
    shortened,
    shown,
    shown_lines,
)

ANY = st.text(st.characters())
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(ANY)
def test_any_text_becomes_one_line_of_printable_characters(text: str) -> None:
    assert shown(text).isprintable()
    assert shown(shown(text)) == shown(text)
    if text.isprintable():
        assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mb", r"a\u001b[31mb"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
        ("Grüße, 日本 [/v2] :smile:", "Grüße, 日本 [/v2] :smile:"),
    ],
)
def test_what_a_terminal_would_act_upon_is_escaped_and_nothing_else(
    text: str, expected: str
) -> None:
    assert shown(text) == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\\"\n')))
def test_a_document_with_escapes_means_the_same(text: str) -> None:
    """A TOML string may hold what a terminal takes for a command: C1 controls, and marks of the
    reading direction."""
    quoted = "".join(
        f"\\u{ord(each):04x}" if ord(each) < 32 or ord(each) == 127 else each for each in text
    )
    assert tomllib.loads(shown_lines(f'a = "{quoted}"\nb = 1')) == {"a": text, "b": 1}


@given(st.lists(WORDS, min_size=1, max_size=20))
@settings(max_examples=25)
def test_a_proposed_command_is_one_line_that_a_shell_takes_as_these_words(words: list[str]) -> None:
    line = command_line(words)
    assert line.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"],
        capture_output=True,
        env={"LC_ALL": "C.UTF-8"},
        check=True,
    )
    assert done.stdout.decode().split("\0")[:-1] == words


def test_a_value_that_looks_like_a_flag_is_joined_to_its_own() -> None:
    assert option("--study", "a b") == ["--study", "a b"]
    assert option("--study", "--help") == ["--study=--help"]


@given(ANY)
def test_html_shows_the_text_and_has_no_tags(text: str) -> None:
    escaped = in_html(text)
    assert not {"<", ">", "$"} & set(escaped)
    assert html.unescape(escaped) == shown(text)


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x>",
        "![a](http://b)",
        "[a](javascript:b)",
        "**a**",
        "`a`",
        "| a |",
        "$x$",
        "http://a.b",
        "a@b.c",
    ],
)
def test_markdown_has_no_construct_that_is_not_escaped(text: str) -> None:
    escaped = in_markdown(text)
    assert not {"<", ">"} & set(escaped)
    for mark in "*`[]|$:@!":
        assert escaped.count(mark) == escaped.count(f"\\{mark}")
    assert in_markdown("www.example.com") == r"www\.example.com"
    assert in_markdown("a&lt;b") == "a&amp;lt;b"


def test_code_has_a_fence_that_the_text_does_not_end() -> None:
    assert in_code("paced.py:Paced") == "`paced.py:Paced`"
    assert in_code("a``b`") == "``` a``b` ```"


def test_a_long_name_keeps_both_of_its_ends() -> None:
    assert shortened("etth-rmsnorm", 12) == "etth-rmsnorm"
    assert shortened("a" * 50 + "-17", 20) == "aaaaaaaaa…aaaaaaa-17"
