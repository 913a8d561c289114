"""Which backend trains a network, and that another one than was asked for never runs without a word."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tuner.config import Backend, ModelShapes, Precision, RunConfig, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.devices import CpuCores, Observation
from tuner.errors import UsageError
from tuner.models.names import builtin_names
from tuner.models.tsmixer import DESIGNS, TSMixer
from tuner.objective import _attributes
from tuner.training import fit
from tuner.training.backends import choose_backend, resolve_backend
from tuner.training.eager import EagerEngine
from tuner.view.trial import _training

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
SHAPES = ModelShapes(input_size=24, horizon=6, n_targets=2, n_past=0, n_future=2, n_static=1, n_quantiles=5)


def network(name: str, hidden_size: int = 32) -> nn.Module:
    return TSMixer(SHAPES, DESIGNS[name], hidden_size=hidden_size, dropout=0.1)


def triton(precision: Precision = Precision.FP32) -> TrainingSettings:
    return TrainingSettings(backend=Backend.TRITON, precision=precision)


def test_auto_is_what_it_was() -> None:
    assert resolve_backend(Backend.AUTO, CUDA) is Backend.GRAPH
    assert resolve_backend(Backend.AUTO, CPU) is Backend.EAGER


@pytest.fixture(autouse=True)
def _a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc")


@pytest.mark.parametrize("name", [name for name in builtin_names() if name != "batchnorm"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
def test_the_fused_kernels_serve_a_built_in_network(name: str, precision: Precision) -> None:
    pytest.importorskip("triton")
    assert choose_backend(triton(precision), network(name), CUDA) == (Backend.TRITON, "")


@pytest.mark.parametrize(
    ("model", "precision", "says"),
    [
        (network("batchnorm"), Precision.FP32, "BatchNorm1d"),
        (network("original", 4096), Precision.FP32, "4096"),
        (network("original"), Precision.BF16, "bf16"),
        (network("original").double(), Precision.FP32, "float64"),
        (nn.Linear(2, 2), Precision.FP32, "Linear"),
    ],
)
def test_what_they_do_not_serve_runs_as_captured_graphs_with_the_reason(
    model: nn.Module, precision: Precision, says: str
) -> None:
    backend, reason = choose_backend(triton(precision), model, CUDA)
    assert backend is Backend.GRAPH
    assert says in reason
    assert "\n" not in reason


def test_without_a_compiler_captured_graphs_run_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    backend, reason = choose_backend(triton(), network("original"), CUDA)
    assert backend is Backend.GRAPH
    assert "neither gcc nor clang" in reason


def test_only_the_fused_kernels_are_asked_about() -> None:
    for backend in (Backend.EAGER, Backend.GRAPH, Backend.COMPILE):
        assert choose_backend(TrainingSettings(backend=backend), network("batchnorm"), CUDA) == (backend, "")


def test_on_a_cpu_there_are_none() -> None:
    with pytest.raises(UsageError, match="'triton' needs a CUDA device, this one is cpu; use eager or auto"):
        choose_backend(triton(), network("original"), CPU)


class _FellBack(EagerEngine):
    fallback = "the fused kernels know no such norm"


def test_a_result_and_the_trials_record_say_why_another_backend_ran(
    data: DeviceData, run_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(max_epochs=1)
    assert fit(config, data).backend_fallback == ""
    monkeypatch.setattr(sys.modules["tuner.training.fit"], "make_engine", _FellBack)
    result = fit(config, data)
    assert (result.backend, result.backend_fallback) == (Backend.EAGER, "the fused kernels know no such norm")
    seen = Observation(contaminated=False, why="")
    recorded = _attributes(result, seen, CpuCores((0,)), seed=0)
    assert (recorded["backend"], recorded["backend_fallback"]) == ("eager", "the fused kernels know no such norm")
    detail: Any = SimpleNamespace(record=SimpleNamespace(attributes=recorded), curve=(), best=None)
    shown = dict(_training(detail, plain=True))
    assert (shown["backend"], shown["not the one asked for"]) == ("eager, fp32", "the fused kernels know no such norm")
