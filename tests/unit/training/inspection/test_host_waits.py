"""What makes a host wait for its GPU is seen on a CPU, by its line; what does not is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.networks_to_look_at import Linear, batch_of, step_of
from tuner.config import Architecture, Hyperparameters
from tuner.data.windows import DeviceData
from tuner.models.names import builtin_names
from tuner.models.own import load_class
from tuner.models.registry import build_model
from tuner.training.inspection.host_waits import Waits, host_waits

WAITING = {
    "past.mean().item()": ".item()",
    "1 if past.sum() > 0 else 2": "a tensor as a condition",
    "past.mean().tolist()": ".tolist()",
    "float(past.mean())": "float() of a tensor",
    "int(past.mean())": "int() of a tensor",
    "len(range(past.argmax()))": "a tensor as a whole number",
    "past.cpu().mean()": ".cpu()",
    "past.to('cpu').mean()": '.to("cpu")',
    "past.detach().numpy().mean()": ".numpy()",
    "np.asarray(past.detach()).mean()": "a tensor as a NumPy array",
    "past[past > 0.5].mean()": "indexing with a mask",
    "written(past).mean()": "writing through a mask",
    "past.nonzero().sum()": "nonzero",
    "torch.where(past > 0.5)[0].sum()": "nonzero",
    "past.masked_select(past > 0.5).sum()": "masked_select",
    "torch.unique(past).mean()": "unique",
    "torch.unique_consecutive(past).mean()": "unique_consecutive",
    "torch.equal(past, past)": "torch.equal",
    "past.abs().long().flatten().bincount(minlength=3).sum()": "bincount",
    "past.repeat_interleave(past[:, 0, 0].long() + 1, dim=0).mean()": "repeat_interleave",
    "torch.linalg.inv(torch.eye(3, device=past.device)).mean()": "a result of torch.linalg",
    "torch.tensor([1.0, 2.0], device=past.device).mean()": "torch.tensor() of values on the host",
    "torch.tensor(1.0, device=past.device)": "torch.tensor() of values on the host",
    "torch.tensor([1.0, 2.0]).mean()": "torch.tensor() of values on the host",
    "past.new_tensor([1.0]).mean()": ".new_tensor() of values on the host",
    "torch.arange(3).to(past.device).sum()": "torch.arange() without device=",
}

FREE = (
    "torch.where(past > 0.5, past, 0.0).mean()",
    "past.masked_fill(past > 0.5, 0.0).mean()",
    "cleared(past).mean()",
    "torch.arange(3, device=past.device).sum()",
    "past.new_zeros(3).sum()",
    "torch.tensor(1.0)",
    "past[:, torch.zeros(3, dtype=torch.int64, device=past.device)].mean()",
    "past.to(past.device).mean()",
    "past.repeat_interleave(2, dim=0).mean()",
    "past.topk(2, dim=1).values.mean() + past.sort(dim=1).values.mean()",
    "nn.functional.dropout(past, 0.5, self.training).mean()",
)

NETWORK = """
import numpy as np
import torch
from torch import nn
from tests.support.networks_to_look_at import Linear


def written(past):
    changed = past.clone()
    changed[changed > 0.5] = torch.zeros((past > 0.5).sum().item())
    return changed


def cleared(past):
    changed = past.clone()
    changed[changed > 0.5] = 0.0
    return changed


class Mine(Linear):
    def forward(self, past, future, static):
        plain = super().forward(past, future, static)
        return plain + 0.1 * (EXPRESSION)
"""


def waits_of(expression: str, data: DeviceData, folder: Path) -> Waits:
    file = folder / "net.py"
    file.write_text(NETWORK.replace("EXPRESSION", expression), encoding="utf-8")
    model = load_class(f"{file}:Mine")(data.shapes)
    return host_waits(step_of(model, data), batch_of(data))


@pytest.mark.parametrize("expression", WAITING)
def test_what_waits_is_seen_and_named_by_its_line(
    expression: str, data: DeviceData, tmp_path: Path
) -> None:
    waits = waits_of(expression, data, tmp_path)
    assert waits.failed == ""
    assert any(wait.what.startswith(WAITING[expression]) for wait in waits.found), waits
    assert all(f"{tmp_path}/net.py, line " in wait.where for wait in waits.found)


@pytest.mark.parametrize("expression", FREE)
def test_what_stays_on_the_device_is_no_wait(
    expression: str, data: DeviceData, tmp_path: Path
) -> None:
    assert waits_of(expression, data, tmp_path) == Waits()


def test_one_call_is_one_wait_at_the_line_that_makes_it(data: DeviceData, tmp_path: Path) -> None:
    (wait,) = waits_of("past.mean().item()", data, tmp_path).found
    line = NETWORK.split("\n").index("        return plain + 0.1 * (EXPRESSION)") + 1
    assert wait.where.endswith(f"net.py, line {line}")
    assert wait.what == ".item()"


@pytest.mark.parametrize("name", builtin_names())
def test_no_built_in_network_waits(name: str, data: DeviceData) -> None:
    sizes = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=16
    )
    model = build_model(Architecture(model=name), data.shapes, sizes)
    assert host_waits(step_of(model, data), batch_of(data)) == Waits()


def test_a_wait_within_our_own_code_would_be_seen(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nothing is said of the built-in networks means something."""
    model = build_model(
        Architecture(model="rmsnorm"),
        data.shapes,
        Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=16
        ),
    )
    plain = type(model).forward

    def waiting(self: torch.nn.Module, *given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = plain(self, *given)
        return result * (1 + 0 * result.mean().item())

    monkeypatch.setattr(type(model), "forward", waiting)
    found = host_waits(step_of(model, data), batch_of(data)).found
    assert [wait.what for wait in found] == [".item()"]


def test_that_it_cannot_be_looked_for_is_said(data: DeviceData) -> None:
    class Failing(Linear):
        def forward(self, past: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no onlookers")

    waits = host_waits(step_of(Failing(data.shapes), data), batch_of(data))
    assert waits.failed.endswith("RuntimeError: no onlookers")
