"""README and the pages of docs can be read: they are few and short, and so are their sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
CHANGELOG = REPOSITORY / "CHANGELOG.md"
LESSONS = DOCS / "lessons.md"
GENERATED = (DOCS / "cli.md", DOCS / "api.md")
PAGES = [path for path in sorted(DOCS.glob("*.md")) if path not in (*GENERATED, LESSONS)]

LONG = 25
"""Words of a sentence that one has to read twice."""
FIRST_SCREEN = 40
"""Lines."""
YOU = r"\byou(r|rs)?\b"
NEGATIONS = r"\b(no|not|none|nobody|nothing|never|without|nor)\b|n't\b"
RELATIVES = r"\b(that|which|who|whose|what|whatever|whoever)\b"


def prose(text: str) -> list[str]:
    """The paragraphs of a page: code, tables, headings, quotes, pictures, links' targets and
    comments are left out, and code within a line is one word.
    """
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(```|~~~).*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*", "", text, flags=re.DOTALL | re.MULTILINE)  # cut off by a screen's end
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [
            re.sub(r"^\s*([-*+]|\d+\.)\s+", "", line)
            for line in block.splitlines()
            if not line.lstrip().startswith(("#", "|", ">", "!["))
        ]
        joined = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(lines))
        joined = re.sub(r"`[^`]*`", "X", joined)
        if joined.strip():
            found.append(joined)
    return found


def sentences(paragraphs: Sequence[str]) -> list[str]:
    parts = [
        part for block in paragraphs for part in re.split(r"(?<=[.!?:])\s+(?=[A-Z(\"*])", block)
    ]
    return [part for part in parts if len(part.split()) >= 3]


def long_sentences(paragraphs: Sequence[str]) -> list[str]:
    return [each for each in sentences(paragraphs) if len(each.split()) > LONG]


def in_1000_words(pattern: str, paragraphs: Sequence[str]) -> float:
    text = " ".join(paragraphs)
    words = re.findall(r"[A-Za-z][\w'-]*", text)
    return 1000 * len(re.findall(pattern, text, re.IGNORECASE)) / len(words)


@pytest.fixture(scope="module")
def everything() -> list[str]:
    """The paragraphs of README and all pages."""
    return [each for path in (README, *PAGES) for each in prose(path.read_text(encoding="utf-8"))]


def test_there_are_at_most_eleven_pages() -> None:
    assert 0 < len(PAGES) <= 11, [path.name for path in PAGES]


@pytest.mark.parametrize(
    ("path", "words"),
    [(README, 500), (CHANGELOG, 350), (LESSONS, 1500), *((path, 1500) for path in PAGES)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_page_is_short(path: Path, words: int) -> None:
    assert len(path.read_text(encoding="utf-8").split()) <= words


@pytest.mark.parametrize("path", [README, *PAGES], ids=lambda path: path.name)
def test_nobody_stumbles_on_a_first_screen(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    seen = lines if path == README else lines[:FIRST_SCREEN]
    assert not long_sentences(prose("\n".join(seen)))


def test_sentences_are_short(everything: list[str]) -> None:
    lengths = [len(each.split()) for each in sentences(everything)]
    assert sum(lengths) / len(lengths) <= 15
    assert len(long_sentences(everything)) / len(lengths) <= 0.08


def test_pages_speak_to_the_reader_and_say_what_is(everything: list[str]) -> None:
    assert in_1000_words(YOU, everything) >= 8
    assert in_1000_words(NEGATIONS, everything) <= 12
    assert in_1000_words(RELATIVES, everything) <= 18


def test_a_page_that_nobody_can_read_would_be_found() -> None:
    riddle = "What nobody knows of that which is not told is " + "never " * 20 + "said."
    page = prose(
        f"# Title\n\nYou run `a b c` here.\n\n```sh\ncode\n```\n\n{riddle}\n\n```text\ncut"
    )
    assert page == ["You run X here.", riddle]
    assert long_sentences(page) == [riddle]
    assert in_1000_words(YOU, page) == pytest.approx(1000 / 35)
    assert in_1000_words(RELATIVES, ["that which is"]) == pytest.approx(2000 / 3)
