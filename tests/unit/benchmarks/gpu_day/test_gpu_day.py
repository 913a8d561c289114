"""The commands for a day with a GPU can be typed as they stand: the scripts, tests and flags
exist."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.cli_parsing import parse
from tests.support.paths import REPOSITORY

DOCUMENTS = ("benchmarks/gpu_day/README.md", "benchmarks/campaign/README.md")


def written() -> list[tuple[str, ...]]:
    """Every command line of these documents, in words."""
    found = []
    for document in DOCUMENTS:
        text = (REPOSITORY / document).read_text(encoding="utf-8")
        fenced = re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
        lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        lines += re.findall(r"`((?:python|tuner) [^`…]+)`", prose)
        words = [
            tuple(shlex.split(line, comments=True))
            for line in lines
            if line.startswith(("python ", "tuner "))
        ]
        found += [each for each in words if len(each) > 2]
    return found


@pytest.mark.parametrize("words", written(), ids=" ".join)
def test_a_command_of_the_documents_can_be_typed(words: tuple[str, ...]) -> None:
    program, *arguments = words
    if program == "tuner":
        parse([word if word != "etth-$v" else "etth-rmsnorm" for word in arguments])
        return
    if arguments[:2] == ["-m", "pytest"]:
        assert (REPOSITORY / arguments[2]).exists()
        return
    if arguments[0] == "-m":
        arguments = [f"{arguments[1].replace('.', '/')}.py", *arguments[2:]]
    script = REPOSITORY / arguments[0]
    text = script.read_text(encoding="utf-8")
    known = set(re.findall(r'"(--[a-z-]+)"', text))
    known |= {"--data-dir"} if "    add_data_dir(" in text else set()
    assert {word for word in arguments if word.startswith("--")} <= known


def test_there_are_commands() -> None:
    assert len(written()) > 15
