"""`tuner variants --check` of a value that only the class can refuse: its line and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.refusals import refused

CHECK = ("variants", "--check", "net.toml", "--task=demo")
LAUNCH = ("launch", "--variant=./net.toml", "--task=demo", "--cpu")
STUDY = """
name = "net"
core_change = "theirs"
model = "{model}"

[model_settings]
{settings}

[defaults]
learning_rate = 1e-3
batch_size = 64
{defaults}

[space.learning_rate]
low = 1e-4
high = 1e-2
scale = "log"
"""
OWN = """
from torch import nn


class Net(nn.Module):
    def __init__(self, shapes, *, width=8, depth=1):
        super().__init__()
        self.shapes = s = shapes
        if not hasattr(self, "fails"):
            self.body = nn.Linear(s.input_size, s.horizon * s.n_quantiles * (width // width))

    def forward(self, past, future, static):
        s = self.shapes
        out = self.body(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)


class Never(Net):
    def __init__(self, shapes, *, width=8, depth=1):
        raise ValueError("it is not ready")
"""

CASES = {
    "a setting": (
        "neuralforecast:NHITS",
        'activation = "ReLU"\ndropout_prob_theta = "much"',
        "",
        (
            "net.toml, line 8: key 'model_settings.dropout_prob_theta': neuralforecast:NHITS: "
            "building it failed: TypeError"
        ),
    ),
    "a default": (
        "neuralforecast:NHITS",
        'activation = "ReLU"',
        (
            'n_freq_downsample = "__import__(1)"\n\n[space.n_freq_downsample]\ntype = "choice"\n'
            'choices = ["__import__(1)", "[4, 2, 1]"]'
        ),
        "net.toml, line 12: key 'defaults.n_freq_downsample': neuralforecast:NHITS: building it",
    ),
    "two that go together": (
        "neuralforecast:PatchTST",
        "n_heads = 32",
        "hidden_size = 16",
        "net.toml, line 7: key 'model_settings.n_heads', with defaults.hidden_size: neuralfo",
    ),
    "two by themselves": (
        "neuralforecast:NHITS",
        'dropout_prob_theta = "much"\nactivation = "NoSuch"',
        "",
        "net.toml, line 6: key 'model_settings': neuralforecast:NHITS: building it failed: ",
    ),
    "a class of one's own": (
        "net.py:Net",
        "depth = 1\nwidth = 0",
        "",
        "net.toml, line 8: key 'model_settings.width': ",
    ),
    "a built-in network": (
        "original",
        "n_blocks = 0",
        "dropout = 0.1\nhidden_size = 8",
        "net.toml, line 7: key 'model_settings.n_blocks': variant 'original', settings: n_blo",
    ),
}


def write(folder: Path, model: str, settings: str, defaults: str) -> None:
    (folder / "net.py").write_text(OWN, encoding="utf-8")
    (folder / "net.toml").write_text(
        STUDY.format(model=model, settings=settings, defaults=defaults), encoding="utf-8"
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_setting_that_a_network_cannot_be_built_with_is_named(
    case: str, tmp_path: Path
) -> None:
    *texts, expected = CASES[case]
    write(tmp_path, *texts)
    said = refused(*CHECK, code=2, folder=tmp_path, says=())
    assert expected in said


def test_a_class_that_is_never_built_is_no_fault_of_a_setting(tmp_path: Path) -> None:
    write(tmp_path, "net.py:Never", "depth = 1", "")
    said = refused(*CHECK, code=2, folder=tmp_path, says=())
    assert "it is not ready" in said
    assert "net.toml" not in said


def test_a_launch_says_it_once(tmp_path: Path) -> None:
    write(tmp_path, "net.py:Net", "depth = 1\nwidth = 0", "")
    said = refused(*LAUNCH, code=2, folder=tmp_path, says=())
    assert said.count("net.toml") == 1
    assert "net.toml, line 8: key 'model_settings.width': " in said
