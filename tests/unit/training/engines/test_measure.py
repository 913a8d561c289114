"""What `auto` is measured to mean: which candidates are tried, and which one is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.config import Architecture, Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices.backend_rules import BackendChoice
from tuner.models.registry import build_model
from tuner.training.engines import choose
from tuner.training.engines.choose import (
    WORTH_COMPILING_S,
    Candidates,
    fastest,
    measured,
    what_auto_means,
)
from tuner.training.engines.eager import VALIDATION_BATCH

EAGER, GRAPH, COMPILE = Backend.EAGER, Backend.GRAPH, Backend.COMPILE
SLOW = """
import time
from torch import nn


class Net(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.shapes = shapes
        self.calls = 0
        self.last = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        self.calls += 1
        time.sleep(0.005)
        plane = self.last(past[..., : s.n_targets].transpose(1, 2))
        return plane.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
"""


@dataclass
class Pretended:
    """Candidates of these seconds an epoch, or of the errors that stand in their place."""

    seconds: Mapping[Backend, float | Exception]
    waits: str = ""
    tried: list[Backend] = field(default_factory=list)

    def epoch_s(self, backend: Backend) -> float:
        self.tried.append(backend)
        found = self.seconds[backend]
        if isinstance(found, Exception):
            raise found
        return found

    def why_not_captured(self) -> str:
        return self.waits


def chosen(tried: Any, max_epochs: int = 200) -> BackendChoice:
    return measured(tried, max_epochs)


def test_what_is_captured_is_taken_where_nothing_is_clearly_faster() -> None:
    tried = Pretended({EAGER: 1.0, GRAPH: 0.2})
    choice = chosen(tried)
    assert (choice.backend, choice.reason) == (GRAPH, "")
    assert choice.measured == "an epoch takes 0.2 s by graph, 1 s by eager"
    assert tried.tried == [EAGER, GRAPH]
    assert fastest({EAGER: 0.97, GRAPH: 1.0}, "").backend is GRAPH
    faster = fastest({EAGER: 0.9, GRAPH: 1.0}, "")
    assert faster.backend is EAGER
    assert faster.reason == "an epoch takes 0.90 of a captured one's time"


def test_compiled_code_is_tried_where_trainings_are_long() -> None:
    long = WORTH_COMPILING_S / 10
    seconds = {EAGER: long, GRAPH: long, COMPILE: long / 20}
    assert chosen(Pretended(seconds), max_epochs=9).backend is GRAPH
    compiled = chosen(Pretended(seconds), max_epochs=11)
    assert compiled.backend is COMPILE
    assert compiled.reason == "an epoch takes 0.05 of a captured one's time"
    broken = seconds | {COMPILE: RuntimeError("the compiler knows no such operation")}
    assert chosen(Pretended(broken), max_epochs=11).backend is GRAPH


def test_a_step_that_waits_is_never_captured() -> None:
    tried = Pretended({EAGER: 100.0}, waits="net.py, line 7: it waits")
    choice = chosen(tried)
    assert choice == BackendChoice(
        backend=EAGER,
        reason="the step cannot be captured: net.py, line 7: it waits",
        epoch_s={"eager": 100.0},
    )
    assert tried.tried == [EAGER]


def test_a_capture_that_fails_leaves_plain_operations_where_the_process_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "_alive", lambda: True)
    tried = Pretended({EAGER: 1.0, GRAPH: RuntimeError("operation not permitted")})
    why = chosen(tried).reason
    assert why.startswith("the step cannot be captured: ")
    assert why.endswith("RuntimeError: operation not permitted")
    monkeypatch.setattr(choose, "_alive", lambda: False)
    with pytest.raises(RuntimeError, match="operation not permitted"):
        chosen(tried)
    full = Pretended({EAGER: 1.0, GRAPH: torch.OutOfMemoryError("16 GiB more")})
    assert chosen(full).backend is EAGER


def test_what_fails_plainly_is_no_choice() -> None:
    with pytest.raises(ValueError, match="of the network's own"):
        chosen(Pretended({EAGER: ValueError("of the network's own")}))


def test_an_epoch_is_foretold_from_some_of_its_steps(
    data: DeviceData, run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(SLOW)
    config = replace(run_config(), architecture=Architecture(model=f"{tmp_path / 'net.py'}:Net"))
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    order = torch.arange(len(data.train)).repeat(20)
    tried = Candidates(config, data, model, order)
    batches = math.ceil(len(order) / 64) + math.ceil(len(data.val) / VALIDATION_BATCH["cpu"])
    before = int(str(model.calls))
    foretold = tried.epoch_s(EAGER)
    assert foretold >= 0.005 * batches
    assert int(str(model.calls)) - before < batches / 2


def test_nothing_is_measured_on_a_cpu_nor_where_a_backend_was_named(
    data: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    assert what_auto_means(run_config(), data) is None
