"""The engine with C++ kernels on a CPU: the eager mathematics, repeatable, never without a word."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tuner.config import Backend, ModelShapes, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import TunerError
from tuner.kernels import host_kernels
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.engines.choose import choose_backend, identifying_backend, resolve_backend
from tuner.training.engines.eager import CompiledCpuEngine, EagerEngine

Configure = Callable[..., RunConfig]
CPU = torch.device("cpu")
REFERENCE = ModelShapes(
    input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=7, n_quantiles=17
)
needs_compiler = pytest.mark.skipif(host_kernels.why_not_built() is not None, reason="needs g++")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")


def trained(
    engine_of: type[EagerEngine], config: RunConfig, data: DeviceData
) -> tuple[EagerEngine, Tensor]:
    """After one epoch: the engine, and the mean of the losses of training and validation."""
    torch.manual_seed(7)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    engine = engine_of(config, data, model)
    engine.warm_up()
    torch.manual_seed(8)
    epoch = engine.train_epoch(torch.arange(len(data.train)), 1e-3, lambda: None)
    return engine, torch.stack([epoch.loss_sum / epoch.n_windows, engine.validation_loss()])


@needs_compiler
@pytest.mark.parametrize("name", builtin_names())
def test_an_epoch_without_dropout_is_the_eager_one(
    data: DeviceData, run_config: Configure, name: str
) -> None:
    config = run_config(name, dropout=0.0)
    ours, losses = trained(CompiledCpuEngine, config, data)
    theirs, expected = trained(EagerEngine, config, data)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=0)
    for key, tensor in ours.state().items():
        torch.testing.assert_close(tensor, theirs.state()[key], rtol=1e-3, atol=1e-5, msg=key)


@needs_compiler
def test_a_seed_gives_the_same_bits_again(data: DeviceData, run_config: Configure) -> None:
    config = run_config(dropout=0.2)
    (first, losses), (second, again) = (trained(CompiledCpuEngine, config, data) for _ in range(2))
    assert torch.equal(losses, again)
    assert all(torch.equal(t, second.state()[key]) for key, t in first.state().items())


@needs_compiler
def test_what_an_engine_left_is_continued_bit_for_bit(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config(dropout=0.2)
    engine, _ = trained(CompiledCpuEngine, config, data)
    kept = {key: tensor.clone() for key, tensor in engine.state().items()}
    other = CompiledCpuEngine(
        config, data, build_model(config.architecture, data.shapes, config.hyperparameters)
    )
    other.warm_up()
    other.load(kept)
    ends = []
    for each in (engine, other):
        torch.manual_seed(9)
        each.train_epoch(torch.arange(len(data.train)), 1e-3, lambda: None)
        ends.append(each.state())
    assert all(torch.equal(tensor, ends[1][key]) for key, tensor in ends[0].items())


@needs_compiler
def test_a_training_asked_for_runs_on_it_and_leaves_a_plain_network(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(run_config(backend=Backend.COMPILE, max_epochs=1), data)
    assert (result.backend, result.backend_fallback) == (Backend.COMPILE, "")
    assert result.model is not None
    batch = data.val.gather(torch.arange(3))
    assert b"HostKernels" not in _pickled(result.model)
    assert result.model(batch.past, batch.future, batch.static).isfinite().all()


def _pickled(model: torch.nn.Module) -> bytes:
    import pickle

    return pickle.dumps(model)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_plain_operations_run_and_the_result_says_so(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config(backend=Backend.COMPILE, max_epochs=1)
    result = fit(config, data)
    assert result.backend is Backend.EAGER
    assert result.backend_fallback.endswith("there is no g++")
    assert identifying_backend(config, data.shapes, CPU) is Backend.EAGER


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP32])
def test_what_the_kernels_do_not_serve_runs_eagerly_with_a_reason(
    data: DeviceData, run_config: Configure, precision: Precision
) -> None:
    config = run_config(backend=Backend.COMPILE, precision=precision)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    network = model if precision is Precision.BF16 else torch.nn.Linear(2, 2)
    backend, reason = choose_backend(config, data.shapes, network, CPU)
    assert backend is Backend.EAGER
    assert ("fp32" if precision is Precision.BF16 else "built-in networks") in reason


def test_auto_takes_it_for_large_planes_alone(data: DeviceData, run_config: Configure) -> None:
    def auto(shapes: ModelShapes, **changes: object) -> Backend:
        return resolve_backend(run_config(**changes), shapes, CPU)

    assert auto(REFERENCE, hidden_size=64, batch_size=256) is Backend.COMPILE
    assert auto(REFERENCE, hidden_size=8, batch_size=64) is Backend.EAGER
    assert auto(data.shapes, hidden_size=256, batch_size=1024) is Backend.EAGER
    assert (
        auto(REFERENCE, hidden_size=64, batch_size=256, precision=Precision.BF16) is Backend.EAGER
    )


def test_a_compiler_that_fails_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'no such option' >&2\nexit 3\n", encoding="utf-8")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    uncached: functools._lru_cache_wrapper[object] = host_kernels.library
    with pytest.raises(TunerError, match="no such option; use --backend eager"):
        uncached.__wrapped__()
