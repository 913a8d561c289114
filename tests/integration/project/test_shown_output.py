"""What a page shows below a command is what the command prints, line by line."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.documentation import blocks
from tests.support.forked_cli import run_here as run
from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import record_study

PAGES = (
    "docs/how-it-works.md",
    "docs/read-a-verdict.md",
    "docs/several-machines.md",
    "docs/use-the-result.md",
)
ELISION = "..."
"""Stands for any number of lines."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of a page, and the lines below it."""

    page: str
    arguments: tuple[str, ...]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: tuner {' '.join(self.arguments)}"


def shown() -> list[Shown]:
    found = []
    for block in blocks("console", among=[REPOSITORY / page for page in PAGES]):
        for part in block.text.split("$ tuner ")[1:]:
            command, *lines = part.splitlines()
            if lines:
                found.append(Shown(block.document, tuple(shlex.split(command)), tuple(lines)))
    return found


SHOWN = shown()


def missing(lines: tuple[str, ...], printed: str) -> list[str]:
    """The lines that are not printed where they are shown: next to each other, unless there is an
    elision between them."""
    there = [line.rstrip() for line in printed.splitlines()]
    lost = []
    place = 0
    anywhere = True
    for line in lines:
        if line == ELISION:
            anywhere = True
            continue
        later = there[place:] if anywhere else there[place : place + 1]
        if line in later:
            place += later.index(line) + 1
        else:
            lost.append(line)
        anywhere = False
    return lost


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the repository's exports, and a study of 24 trials in storage/tuner.db."""
    made = tmp_path_factory.mktemp("shown")
    (made / "benchmarks").symlink_to(REPOSITORY / "benchmarks")
    url = f"sqlite:///{made}/storage/tuner.db"
    record_study(url, variant="rmsnorm", name="etth-rmsnorm", trials=24)
    return made


def test_the_pages_show_what_commands_print() -> None:
    assert {each.page for each in SHOWN} == set(PAGES)


@pytest.mark.parametrize("each", SHOWN, ids=str)
def test_a_page_shows_what_its_command_prints(each: Shown, folder: Path) -> None:
    arguments = []
    for word in each.arguments:
        files = sorted(folder.glob(word)) if "*" in word else []
        arguments += [str(file.relative_to(folder)) for file in files] or [word]
    done = run(*arguments, folder=folder)
    assert done.code == 0, done.err
    assert missing(each.lines, done.out) == []


def test_a_line_that_is_not_printed_is_found() -> None:
    printed = "a\nb \nc\nd\n"
    assert missing(("b", "c"), printed) == []
    assert missing(("a", ELISION, "d"), printed) == []
    assert missing(("a", "c"), printed) == ["c"]
    assert missing(("e",), printed) == ["e"]
    assert missing(("c", ELISION, "a"), printed) == ["a"]
