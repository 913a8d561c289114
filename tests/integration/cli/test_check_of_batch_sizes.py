"""`tuner variants --check` of a network with statistics over windows: the last batch of an epoch
may have one window only.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.forked_cli import run_here as run
from tests.support.refusals import refused

TASK = """
name = "mine"
target_columns = ["load"]
frequency = "h"
input_size = 24
horizon = 8

[source]
kind = "csv"
path = "mine.csv"
time_column = "time"
"""
ROWS = [f"2024-01-{1 + h // 24:02d}T{h % 24:02d}:00:00,{h % 24}.5" for h in range(24 * 20)]
WINDOWS = 257

NETWORK = """
from torch import nn


class Net(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        s = self.shapes = shapes
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(s.n_targets * s.input_size, hidden_size),
            nn.NORM(hidden_size),
            nn.Linear(hidden_size, s.horizon * s.n_targets * s.n_quantiles),
        )

    def forward(self, past, future, static):
        s = self.shapes
        return self.body(past).view(-1, s.horizon, s.n_targets, s.n_quantiles)
"""
STUDY = """
name = "net"
core_change = "a batch norm over windows"
model = "net.py:Net"

[defaults]
learning_rate = 1e-3
weight_decay = 0.0
dropout = 0.1
hidden_size = 8
batch_size = 512

[space.batch_size]
low = 32
high = 512
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task with 257 training windows: 32, 64, 128 and 256 leave one of them."""
    (tmp_path / "mine.csv").write_text("\n".join(["time,load", *ROWS]), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(TASK, encoding="utf-8")
    (tmp_path / "net.toml").write_text(STUDY, encoding="utf-8")
    with_norm(tmp_path, "BatchNorm1d")
    return tmp_path


def with_norm(folder: Path, norm: str) -> None:
    (folder / "net.py").write_text(NETWORK.replace("NORM", norm), encoding="utf-8")


def test_a_default_that_leaves_one_window_is_refused_where_a_step_on_that_fails(
    folder: Path,
) -> None:
    refused(
        "variants", "--check", "net.py:Net", "--task", "mine.toml", folder=folder, code=2,
        says=(
            f"one window, the last batch of {WINDOWS} at batch_size 256, failed: net.py, line ",
            "Expected more than 1 value per channel",
            "choose another batch_size, or a norm that needs no second window",
        ),
    )  # fmt: skip


def test_other_batch_sizes_that_leave_one_are_named(folder: Path) -> None:
    arguments = ("variants", "--check", "net.toml", "--task", "mine.toml", "--json")
    done = run(*arguments, folder=folder)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["windows"]["train"] == WINDOWS
    (line,) = [each for each in document["notices"] if "batch_size" in each]
    assert line.startswith("batch_size = 32, 64, 128, 256 fail: ")
    with_norm(folder, "LayerNorm")
    done = run(*arguments, folder=folder)
    assert done.code == 0, done.err
    assert not [each for each in json.loads(done.out)["notices"] if "batch_size" in each]


def test_a_norm_that_needs_no_second_window_is_no_matter(folder: Path) -> None:
    with_norm(folder, "LayerNorm")
    done = run("variants", "--check", "net.py:Net", "--task", "mine.toml", folder=folder)
    assert done.code == 0, done.err
    done = run("variants", "--check", "batchnorm", "--task", "mine.toml", folder=folder)
    assert done.code == 0, done.err
