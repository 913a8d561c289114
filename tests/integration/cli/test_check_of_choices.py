"""`tuner variants --check` builds a class of the user's own once with each choice that is
declared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.open_spaces import NETWORK, STUDY

TASK = ("--task", "demo")


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A class that knows two of its three norms."""
    begins = "        s = self.shapes = shapes\n"
    assert begins in NETWORK
    known = '        {"none": 0, "layer": 1}[norm]\n'
    text = NETWORK.replace(begins, known + begins)
    (tmp_path / "stack.py").write_text(text, encoding="utf-8")
    study = STUDY.replace("input_size = 6\n", "input_size = 12\n").replace("[6, 9, 12]", "[12, 24]")
    (tmp_path / "stack.toml").write_text(study, encoding="utf-8")
    return tmp_path


def test_a_choice_that_the_class_does_not_know_is_told(stack: Path) -> None:
    done = run("variants", "--check", "stack.toml", *TASK, "--json", folder=stack)
    assert done.code == 0, done.err
    (line,) = [each for each in json.loads(done.out)["notices"] if "norm" in each]
    assert line.startswith("norm = 'batch' fails: ")
    assert "building it failed: " in line
    assert "KeyError: 'batch'" in line
