"""`tuner init variant`: a study file that is valid, and that its class takes; it replaces none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.documentation import blocks, documented_commands
from tests.support.forked_cli import run_here as run
from tests.support.refusals import refused
from tests.support.small_study import TASK_TOML
from tuner.spec.study_file import StudyFile, load_study_file

NETWORKS = '''
from typing import Literal

import torch
from torch import nn


class Mine(nn.Module):
    """Each target by itself."""

    def __init__(self, shapes, *, hidden_size: int = 32, depth: int = 2, gated: bool = False,
                 norm: Literal["layer", "none"] = "layer", scale: float = 1.0, mode: str = "mean",
                 channels: int = 16, kernel_size: int = 3, attention_dropout: float = 0.1,
                 ff: int | None = None, seed: int = 0):
        super().__init__()
        assert mode == "mean" and seed == 0 and ff is None
        self.shapes, self.scale = shapes, scale
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        out = self.scale * self.layer(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)


class Small(Mine):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__(shapes)


class Open(Mine):
    def __init__(self, shapes, mode, *, kernel):
        super().__init__(shapes)


class Refusing(Mine):
    def __init__(self, shapes, *, depth: int = 3):
        raise ValueError("only even depths")


class ForDarts(nn.Module):
    def __init__(self, input_dim, output_dim, past_cov_dim, future_cov_dim, static_cov_dim,
                 nr_params, hidden_size, dropout, extra: int = 3, **more):
        super().__init__()
        self.horizon, self.outputs = more["output_chunk_length"], (output_dim, nr_params)
        assert more["num_blocks"] == 2 and more["activation"] == "ReLU"
        self.layer = nn.Linear(input_dim, self.horizon * output_dim * nr_params)

    def forward(self, x_in):
        return self.layer(x_in.past_target[:, -1]).view(-1, self.horizon, *self.outputs)


class NoModule:
    pass
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORKS, encoding="utf-8")
    return tmp_path


def read(file: Path) -> StudyFile:
    return load_study_file(str(file))


def test_the_file_is_read_and_its_class_checked(folder: Path) -> None:
    done = run("init", "variant", "nets.py:Mine", "--json", folder=folder)
    assert done.code == 0, done.err
    said = done.json()
    assert said["file"] == "mine.toml"
    assert said["left"] == ["mode", "ff", "seed"]
    assert said["to_fill"] == []
    assert said["searched"] == [
        *("learning_rate", "weight_decay", "hidden_size", "batch_size", "depth", "gated"),
        *("norm", "scale", "channels", "kernel_size", "attention_dropout"),
    ]
    file = read(folder / "mine.toml")
    assert (file.name, file.core_change) == ("mine", "Each target by itself")
    sizes = file.default_hyperparameters()
    assert (sizes.hidden_size, sizes.dropout) == (32, None)
    assert sizes.own == {
        "depth": 2,
        "gated": False,
        "norm": "layer",
        "scale": 1.0,
        "channels": 16,
        "kernel_size": 3,
        "attention_dropout": 0.1,
    }
    assert said["next"][0] == "tuner variants --check mine.toml --task demo"
    checked = run(*said["next"][0].split()[1:], folder=folder)
    assert checked.code == 0, checked.err
    assert "mine: " in checked.out


def test_the_class_is_named_relative_to_the_file(folder: Path) -> None:
    (folder / "studies").mkdir()
    to = folder / "studies" / "small one.toml"
    done = run("init", "variant", "nets.py:Small", "--output", str(to), folder=folder)
    assert done.code == 0, done.err
    assert 'model = "../nets.py:Small"' in to.read_text()
    assert read(to).architecture().model == f"{folder / 'studies' / '..' / 'nets.py'}:Small"
    assert f"tuner variants --check '{to}' --task demo" in done.out
    assert f"#   tuner launch --variant '{to}' --task demo\n" in to.read_text()
    checked = run("variants", "--check", str(to), folder=folder / "studies")
    assert checked.code == 0, checked.err


@pytest.mark.parametrize("model", ["nets.py:Small", "neuralforecast:NHITS"])
def test_what_comes_next_is_of_the_data_that_it_was_tried_on(model: str, folder: Path) -> None:
    """With another task the commands would check, and search, something else."""
    (folder / "my task.toml").write_text(TASK_TOML)
    words = ("init", "variant", model, "--output", "mine.toml", "--task", "my task.toml")
    done = run(*words, "--data-dir", "elsewhere", "--json", folder=folder)
    assert done.code == 0, done.err
    options = "--task 'my task.toml' --data-dir elsewhere"
    check, launch = done.json()["next"]
    assert check == f"tuner variants --check mine.toml {options}"
    assert launch == f"tuner launch --variant mine.toml {options}"
    written = (folder / "mine.toml").read_text()
    assert f" {check}\n" in written
    assert f" {launch}\n" in written
    assert "--task demo" not in written


def test_an_importable_class_is_named_as_it_was(folder: Path) -> None:
    done = run("init", "variant", "nets:Small", folder=folder)
    assert done.code == 0, done.err
    assert read(folder / "small.toml").model == "nets:Small"


def test_what_the_user_must_fill_in_is_said_here_and_by_the_check(folder: Path) -> None:
    done = run("init", "variant", "nets.py:Open", folder=folder)
    assert done.code == 0, done.err
    assert "open.toml: fill in mode, kernel under [model_settings] first" in done.err
    text = (folder / "open.toml").read_text()
    assert "\n# mode = ...\n" in text
    said = refused("variants", "--check", "open.toml", folder=folder, code=2, says=())
    assert "is not given what its constructor needs: mode, kernel; name each in" in said
    filled = text.replace("# mode = ...", 'mode = "mean"').replace("# kernel = ...", "kernel = 3")
    (folder / "open.toml").write_text(filled)
    assert run("variants", "--check", "open.toml", folder=folder).code == 0


def test_a_file_that_is_there_is_replaced_only_by_force(folder: Path) -> None:
    (folder / "small.toml").write_text("mine")
    arguments = ("init", "variant", "nets.py:Small")
    says = ("small.toml: is there already; name another file with --output, or say --force",)
    refused(*arguments, folder=folder, code=2, says=says)
    assert run(*arguments, "--force", folder=folder).code == 0
    assert read(folder / "small.toml").name == "small"


def test_a_module_written_for_darts_gets_a_study_of_its_own(folder: Path) -> None:
    done = run("init", "variant", "nets.py:ForDarts", folder=folder)
    assert done.code == 0, done.err
    file = read(folder / "for-darts.toml")
    sizes = file.default_hyperparameters()
    assert (sizes.hidden_size, sizes.dropout) == (64, 0.1)
    assert sizes.own == {
        "num_blocks": 2,
        "normalize_before": False,
        "activation": "ReLU",
        "extra": 3,
    }
    assert file.model_settings == {"norm_type": "LayerNorm"}


def test_the_documented_beginning_is_what_the_command_does(tmp_path: Path) -> None:
    shown = [each for each in blocks("python", "toml") if "own-model" in each.document]
    (network,) = (each.text for each in shown if each.text.startswith("# last_value_mlp.py"))
    (tmp_path / "last_value_mlp.py").write_text(network, encoding="utf-8")
    mine = [each.arguments for each in documented_commands() if "own-model" in each.document]
    (command,) = (each for each in mine if each[:2] == ("init", "variant"))
    done = run(*command, folder=tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "last-value-mlp.toml").read_text()
    excerpts = [each.text for each in shown if re.match(r"\[space\.\w+\]\ntype", each.text)]
    assert excerpts
    assert all(each in text for each in excerpts)
    checked = run("variants", "--check", "last-value-mlp.toml", folder=tmp_path)
    assert checked.code == 0, checked.err
