"""`tuner variants --check` of a value that only the class can refuse: its line and its key."""

from __future__ import annotations

from pathlib import Path

from tests.support.refusals import refused

CHECK = ("variants", "--check", "net.toml", "--task=demo")
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


def write(folder: Path, model: str, settings: str, defaults: str) -> None:
    (folder / "net.py").write_text(OWN, encoding="utf-8")
    (folder / "net.toml").write_text(
        STUDY.format(model=model, settings=settings, defaults=defaults), encoding="utf-8"
    )


def test_two_settings_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    write(tmp_path, "neuralforecast:PatchTST", "n_heads = 32", "hidden_size = 16")
    said = refused(*CHECK, code=2, folder=tmp_path, says=())
    assert "net.toml, line 7: key 'model_settings.n_heads', with defaults.hidden_size: n" in said


def test_a_class_that_is_never_built_is_no_fault_of_a_setting(tmp_path: Path) -> None:
    write(tmp_path, "net.py:Never", "depth = 1", "")
    said = refused(*CHECK, code=2, folder=tmp_path, says=())
    assert "it is not ready" in said
    assert "net.toml" not in said
