"""What `auto` means for networks that are not built in; nothing is left of measuring it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.backend_trainings import config_of
from tuner.config import Architecture, Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices.backend_rules import BackendChoice
from tuner.training import fit
from tuner.training.engines.choose import what_auto_means

LINEAR = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.shapes = shapes
        self.first = nn.Linear(shapes.input_size, hidden_size)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(hidden_size, shapes.horizon * shapes.n_quantiles)
        self.calls = 0

    def forward(self, past, future, static):
        s = self.shapes
        plane = self.drop(torch.relu(self.first(past[..., : s.n_targets].transpose(1, 2))))
        {line}
        return self.last(plane).unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
"""
LINES = {
    "captured": "pass",
    "reads a value": "plane = plane * (1.0 if plane.sum().item() > 0 else 2.0)",
    "copies from the host": "plane = plane + torch.ones(plane.shape[-1]).to(plane.device)",
    "asks for an event": "torch.cuda.current_stream().synchronize()",
}


def own(tmp_path: Path, line: str) -> RunConfig:
    file = tmp_path / "net.py"
    file.write_text(LINEAR.replace("{line}", LINES[line]))
    config = config_of("original", Backend.AUTO, dropout=0.2)
    return replace(config, architecture=Architecture(model=f"{file}:Net"))


def chosen(config: RunConfig, choice: BackendChoice) -> RunConfig:
    return replace(config, training=config.training.but(backend=choice.backend))


def test_a_step_that_can_be_captured_is(cuda_data: DeviceData, tmp_path: Path) -> None:
    config = own(tmp_path, "captured")
    before = torch.cuda.get_rng_state()
    held = torch.cuda.memory_allocated()
    choice = what_auto_means(config, cuda_data)
    assert choice is not None
    print(choice)
    assert (choice.backend, choice.reason) == (Backend.GRAPH, "")
    assert choice.epoch_s["graph"] < choice.epoch_s["eager"]
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.cuda.memory_allocated() <= held + (160 << 20)  # workspaces of libraries
    told = fit(chosen(config, choice), cuda_data)
    assert told.s_per_epoch == pytest.approx(choice.epoch_s["graph"], rel=0.5)


@pytest.mark.parametrize("line", [name for name in LINES if name != "captured"])
def test_a_step_that_waits_for_the_host_runs_plainly_and_says_where(
    cuda_data: DeviceData, tmp_path: Path, line: str
) -> None:
    config = own(tmp_path, line)
    choice = what_auto_means(config, cuda_data)
    assert choice is not None
    print(choice)
    assert choice.backend is Backend.EAGER
    assert "graph" not in choice.epoch_s
    assert choice.reason.startswith("the step cannot be captured: ")
    assert "net.py, line " in choice.reason
    # The process trains on, captured steps included.
    assert fit(chosen(config, choice), cuda_data).stopped_by.completed
    assert fit(config_of("original", Backend.GRAPH, dropout=0.2), cuda_data).stopped_by.completed
    sound = own(tmp_path, "captured")
    again = what_auto_means(sound, cuda_data)
    assert again is not None
    assert again.backend is Backend.GRAPH


def test_built_in_networks_are_not_measured(cuda_data: DeviceData) -> None:
    assert what_auto_means(config_of("original", Backend.AUTO), cuda_data) is None
    assert what_auto_means(config_of("original", Backend.GRAPH), cuda_data) is None


@pytest.mark.parametrize("name", ["TCN", "TSMixerx", "PatchTST", "iTransformer", "NHITS"])
def test_models_of_neuralforecast_are_captured(cuda_data: DeviceData, name: str) -> None:
    why = "neuralforecast, or what it needs, is not installed"
    pytest.importorskip("neuralforecast.models", reason=why, exc_type=ImportError)
    config = config_of("original", Backend.AUTO)
    h = replace(config.hyperparameters, hidden_size=None, dropout=None)
    library = Architecture(model=f"neuralforecast:{name}")
    config = replace(config, hyperparameters=h, architecture=library)
    choice = what_auto_means(config, cuda_data)
    assert choice is not None
    print(name, choice)
    assert choice.backend is Backend.GRAPH
    assert fit(chosen(config, choice), cuda_data).stopped_by.completed
