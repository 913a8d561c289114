"""Which backend trains a network, and that no other runs without a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.backend_choices import CPU, CUDA, SHAPES, config_of, network, triton
from tuner.config import Backend, CompileMode, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices import CpuCores, Observation
from tuner.errors import UsageError
from tuner.models.names import builtin_names
from tuner.report.terminal.trial_sections import _training
from tuner.training import fit
from tuner.training.engines.choose import choose_backend, resolve_backend, step_kernels_serve
from tuner.training.engines.eager import EagerEngine
from tuner.trial.run import _recorded


@pytest.fixture(autouse=True)
def _a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc")


@pytest.mark.parametrize("name", [name for name in builtin_names() if name != "batchnorm"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
def test_the_fused_kernels_serve_a_built_in_network(name: str, precision: Precision) -> None:
    pytest.importorskip("triton")
    assert choose_backend(triton(precision), SHAPES, network(name), CUDA) == (Backend.TRITON, "")


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("asked", [Backend.TRITON, Backend.AUTO])
@pytest.mark.parametrize(
    ("model", "precision", "says"),
    [
        (network("batchnorm"), Precision.FP32, "BatchNorm1d"),
        (network("original", 4096), Precision.FP32, "4096"),
        (network("original").double(), Precision.FP32, "float64"),
        (nn.Linear(2, 2), Precision.FP32, "Linear"),
    ],
)
def test_what_they_do_not_serve_runs_as_captured_graphs_with_the_reason(
    asked: Backend, model: nn.Module, precision: Precision, says: str
) -> None:
    backend, reason = choose_backend(config_of(asked, precision), SHAPES, model, CUDA)
    assert backend is Backend.GRAPH
    assert says in reason
    assert "\n" not in reason


def trained_with(backend: Backend, **settings: Any) -> RunConfig:
    config = config_of(backend)
    return replace(config, training=config.training.but(**settings))


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("asked", [Backend.TRITON, Backend.AUTO])
@pytest.mark.parametrize("searched", [False, True])
def test_accumulated_batches_run_as_captured_graphs_with_the_reason(
    asked: Backend, *, searched: bool
) -> None:
    config = config_of(asked)
    if searched:
        sizes = replace(config.hyperparameters, own={"accumulate": 4})
        config = replace(config, hyperparameters=sizes)
    else:
        config = trained_with(asked, accumulate=4)
    backend, reason = choose_backend(config, SHAPES, network("original"), CUDA)
    assert backend is Backend.GRAPH
    assert "after every batch, accumulate is 4" in reason


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("device", [CUDA, CPU], ids=str)
def test_with_checkpoints_auto_means_plain_operations_with_the_reason(device: torch.device) -> None:
    config = trained_with(Backend.AUTO, checkpoint_activations=True)
    assert resolve_backend(config, SHAPES, device) is Backend.EAGER
    backend, reason = choose_backend(config, SHAPES, network("original"), device)
    assert backend is Backend.EAGER
    assert "random numbers" in reason
    named = trained_with(Backend.EAGER, checkpoint_activations=True)
    assert choose_backend(named, SHAPES, network("original"), device) == (Backend.EAGER, "")


MIXES: list[tuple[Backend, dict[str, Any], torch.device, str]] = [
    (Backend.GRAPH, {"checkpoint_activations": True}, CUDA, "'graph' cannot: choose eager or auto"),
    (Backend.TRITON, {"checkpoint_activations": True}, CUDA, "'triton' cannot"),
    (Backend.COMPILE, {"checkpoint_activations": True}, CPU, "'compile' cannot"),
    (Backend.GRAPH, {"compile_mode": CompileMode.MAX_AUTOTUNE}, CUDA, "not of 'graph'"),
    (Backend.COMPILE, {"compile_mode": CompileMode.REDUCE_OVERHEAD}, CPU, "on the CPU"),
    (Backend.EAGER, {"precision": Precision.FP16}, torch.device("meta"), "this one is meta"),
]


@pytest.mark.parametrize(("backend", "settings", "device", "says"), MIXES)
def test_settings_that_do_not_go_together_are_one_line(
    backend: Backend, settings: dict[str, Any], device: torch.device, says: str
) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        choose_backend(trained_with(backend, **settings), SHAPES, network("original"), device)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_the_fused_kernels_do_not_compute_in_half_precision(precision: Precision) -> None:
    backend, reason = choose_backend(triton(precision), SHAPES, network("original"), CUDA)
    assert backend is Backend.GRAPH
    assert f"not in {precision.value}" in reason
    on_a_cpu = config_of(Backend.COMPILE, precision)
    backend, reason = choose_backend(on_a_cpu, SHAPES, network("original"), CPU)
    assert (backend, reason) == (Backend.EAGER, "the kernels for a CPU compute in fp32 only")


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("asked", [Backend.TRITON, Backend.AUTO])
def test_without_a_compiler_captured_graphs_run_with_the_reason(
    asked: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    backend, reason = choose_backend(config_of(asked), SHAPES, network("original"), CUDA)
    assert backend is Backend.GRAPH
    assert "neither gcc nor clang" in reason


def test_only_the_fused_kernels_are_asked_about() -> None:
    for backend in (Backend.EAGER, Backend.GRAPH, Backend.COMPILE):
        assert choose_backend(config_of(backend), SHAPES, network("batchnorm"), CUDA) == (
            backend,
            "",
        )


def test_the_kernels_around_a_network_serve_any_of_single_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    frozen = network("original")
    frozen.head.double().requires_grad_(False)
    assert all(step_kernels_serve(each) for each in (network("batchnorm"), nn.Linear(2, 2), frozen))
    assert not step_kernels_serve(network("original").double())
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    assert not step_kernels_serve(network("original"))


def test_on_a_cpu_there_are_none() -> None:
    with pytest.raises(
        UsageError, match="'triton' needs a CUDA device, this one is cpu; use eager or auto"
    ):
        choose_backend(triton(), SHAPES, network("original"), CPU)


class _FellBack(EagerEngine):
    fallback = "the fused kernels know no such norm"


def test_a_result_and_the_trials_record_say_why_another_backend_ran(
    data: DeviceData, run_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(max_epochs=1)
    assert fit(config, data).backend_fallback == ""
    monkeypatch.setattr(import_module("tuner.training.fit"), "make_engine", _FellBack)
    result = fit(config, data)
    assert (result.backend, result.backend_fallback) == (
        Backend.EAGER,
        "the fused kernels know no such norm",
    )
    seen = Observation(contaminated=False, why="")
    recorded = _recorded(result, seen, CpuCores((0,)), seed=0)
    assert (recorded.backend, recorded.backend_fallback) == (
        "eager",
        "the fused kernels know no such norm",
    )
    detail: Any = SimpleNamespace(
        record=SimpleNamespace(recorded=recorded),
        curve=(),
        best=None,
        throughput=SimpleNamespace(ends=None),
        alarm=None,
    )
    shown = dict(_training(detail, plain=True))
    assert (shown["backend"], shown["not compile, since"]) == (
        "eager, fp32",
        "the fused kernels know no such norm",
    )
