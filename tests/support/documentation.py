"""What README and docs show: their fenced blocks, and the command lines in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY

DOCSTRINGS = REPOSITORY / "docs" / "api.md"
"""Made of docstrings, which name a command by a flag or two and leave out the rest."""
HELP = REPOSITORY / "docs" / "cli.md"
"""Made of every command's help: that a command stands there does not mean that somebody explained
it."""
SHELLS = ("console", "sh", "")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: where it stands, its language, its text."""

    document: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class DocumentedCommand:
    """A command line as written, and its arguments without `tuner`."""

    document: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: tuner {shlex.join(self.arguments)}"


def documents() -> list[Path]:
    """What a reader is sent to: README and docs."""
    at_the_top = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "storage/README.md")
    return [
        *(REPOSITORY / name for name in at_the_top),
        *sorted((REPOSITORY / "docs").rglob("*.md")),
    ]


def every_document() -> list[Path]:
    """Those, and what lies beside figures and notebooks."""
    beside = (
        path
        for folder in ("benchmarks", "notebooks")
        for path in sorted((REPOSITORY / folder).rglob("*.md"))
    )
    return [*documents(), *beside]


def is_a_result(path: Path) -> bool:
    """A page that a benchmark wrote names the command of its day, at the revision that it names."""
    return "benchmarks" in path.parts and path.name != "README.md"


def blocks(*languages: str, among: Sequence[Path] | None = None) -> list[Block]:
    """The blocks of README and docs, or of the documents `among` which to look."""
    return [
        Block(str(path.relative_to(REPOSITORY)), language, text)
        for path in (documents() if among is None else among)
        for language, text in _FENCE.findall(path.read_text(encoding="utf-8"))
        if language in languages
    ]


def printed(document: str, beginning: str) -> str:
    """What a page shows of a command's output: its `text` block that begins so."""
    (text,) = (
        block.text
        for block in blocks("text", among=[REPOSITORY / document])
        if block.text.startswith(beginning)
    )
    return text


def without_decimals(text: str) -> str:
    """The same with every decimal fraction alike, as seconds and losses differ by machine, and
    without the spaces that end a line.
    """
    lines = [re.sub(r"\d+\.\d+", "#.#", line).rstrip() for line in text.splitlines()]
    return "\n".join([*lines, ""])


def documented_commands() -> list[DocumentedCommand]:
    """Every `tuner …` line in a shell block, and every one of two words or more in inline code."""
    found = []
    for block in blocks(*SHELLS, among=every_document()):
        for line in block.text.replace("\\\n", " ").splitlines():
            typed = line.strip().removeprefix("$ ")
            if typed.startswith("tuner "):
                found.append(
                    DocumentedCommand(block.document, tuple(shlex.split(typed, comments=True)[1:]))
                )
    for path in every_document():
        if path == DOCSTRINGS:
            continue
        prose = _FENCE.sub("", path.read_text(encoding="utf-8"))
        for code in re.findall(r"`(tuner [^`…]+)`", prose):
            words = shlex.split(code)
            # A name alone (`tuner launch`) is a name; with a flag it is something to type.
            if any(word.startswith("-") for word in words):
                found.append(DocumentedCommand(str(path.relative_to(REPOSITORY)), tuple(words[1:])))
    return found


def documented_targets() -> set[str]:
    """Every `make TARGET` in README, docs and what lies beside figures."""
    return {
        target
        for text in _texts()
        for target in re.findall(r"(?:^|`)make ([a-z][\w-]*)", text, flags=re.MULTILINE)
    }


def documented_scripts() -> set[str]:
    """Every script of the repository that a documented `python …` or `pytest …` line names."""
    named = r"\bpython (?:-m pytest )?(?:-\w+ )*((?:benchmarks|docs|notebooks|tests)/[\w./-]+)"
    return {
        script.rstrip(".")
        for text in _texts()
        for script in re.findall(named, text.replace("\\\n", " "))
    }


def _texts() -> list[str]:
    pages = (path for path in every_document() if not is_a_result(path))
    return [path.read_text(encoding="utf-8") for path in pages]
