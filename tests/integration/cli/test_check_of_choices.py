"""`tuner variants --check` builds a network once with each choice that is declared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.forked_cli import run_here as run
from tests.support.open_spaces import NETWORK, NHITS_STUDY, STUDY

TASK = ("--task", "demo")

WIDE = """
from torch import nn


class Net(nn.Module):
    def __init__(self, shapes, *, hidden_size):
        super().__init__()
        self.shapes = shapes
        1 // (hidden_size - 6)
        self.body = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        out = self.body(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
"""
WIDE_STUDY = """
name = "net"
core_change = "a width"
model = "net.py:Net"
[defaults]
learning_rate = 1e-3
batch_size = 64
hidden_size = 8
[space.hidden_size]
type = "choice"
choices = [6, 8]
"""


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


def told(file: str, folder: Path, about: str = " fails: ") -> list[str]:
    """The notices of a check that passes in which `about` stands."""
    done = run("variants", "--check", file, *TASK, "--json", folder=folder)
    assert done.code == 0, done.err
    return [each for each in json.loads(done.out)["notices"] if about in each]


def told_of_wide(folder: Path, network: str, study: str) -> str:
    """The one notice of a choice of its hidden size."""
    (folder / "net.py").write_text(network, encoding="utf-8")
    (folder / "net.toml").write_text(study, encoding="utf-8")
    (line,) = told("net.toml", folder)
    return line


def test_a_choice_of_a_hidden_size_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    line = told_of_wide(tmp_path, WIDE, WIDE_STUDY)
    assert line.startswith("hidden_size = 6 fails: ")
    assert "ZeroDivisionError" in line


def test_a_choice_that_takes_more_memory_than_there_is_takes_none(tmp_path: Path) -> None:
    wide = WIDE.replace("1 // (hidden_size - 6)", "self.a = nn.Linear(hidden_size, hidden_size)")
    assert wide != WIDE
    line = told_of_wide(tmp_path, wide, WIDE_STUDY.replace("[6, 8]", "[8, 8388608]"))
    assert line.startswith("hidden_size = 8388608 fails: ")
    assert "net.py:Net needs about " in line
    assert "choose a smaller hidden_size" in line


def test_a_choice_that_the_class_does_not_know_is_told(stack: Path) -> None:
    (line,) = told("stack.toml", stack, "norm")
    assert line.startswith("norm = 'batch' fails: ")
    assert "building it failed: " in line
    assert "KeyError: 'batch'" in line


def test_what_is_there_only_with_another_depth_is_built_with_it(stack: Path) -> None:
    """At the defaults, and with each choice, a misspelt one is not there."""
    text = (stack / "stack.toml").read_text(encoding="utf-8")
    for old, new in (("[space.width]", "[space.widht]"), ('{ norm = "none" }', "{ depth = [3] }")):
        assert old in text
        text = text.replace(old, new)
    (stack / "stack.toml").write_text(text, encoding="utf-8")
    (line,) = told("stack.toml", stack, "widht")
    assert line.startswith("widht = 8, where depth is 3, fails: ")
    assert "unexpected keyword argument 'widht'" in line


LIBRARY = NHITS_STUDY.replace('"Tanh"]', '"Tanh", "NoSuch"]').replace(
    'activation = "ReLU"\n', 'activation = "ReLU"\nn_freq_downsample = "[4, 2, 1]"\n'
)
LIBRARY += """
[space.n_freq_downsample]
type = "choice"
choices = ["[4, 2, 1]", "[2, 2, 1]", "[4, 2"]
"""


def test_a_choice_that_a_class_of_the_library_does_not_know_is_told(tmp_path: Path) -> None:
    (tmp_path / "nhits.toml").write_text(LIBRARY, encoding="utf-8")
    unknown, no_list = told("nhits.toml", tmp_path)
    assert unknown.startswith("activation = 'NoSuch' fails: neuralforecast:NHITS: building it")
    assert "NoSuch is not in ['ReLU'" in unknown
    assert no_list.startswith("n_freq_downsample = '[4, 2' fails: ")
    assert "'[4, 2' is no list; expected e.g." in no_list
