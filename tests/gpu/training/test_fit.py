"""What the training promises on a CPU holds on a CUDA device too."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.present import present
from tuner.config import (
    Architecture,
    Backend,
    Hyperparameters,
    RunConfig,
    StopReason,
    TrainingSettings,
)
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.models.names import builtin_names
from tuner.training import EpochRecord, FitResult, evaluate, fit
from tuner.training.engines.eager import EagerEngine

CUDA_BACKENDS = (Backend.GRAPH, Backend.TRITON)
CASES = [
    (name, backend)
    for name in builtin_names()
    for backend in CUDA_BACKENDS
    if (name, backend) != ("batchnorm", Backend.TRITON)  # which runs as GRAPH: test_fused.py
]


def _config(
    model: str = "original",
    *,
    seed: int = 0,
    max_epochs: int = 2,
    backend: Backend = Backend.GRAPH,
    **changes: float,
) -> RunConfig:
    hyperparameters: dict[str, Any] = {
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "dropout": 0.1,
        "hidden_size": 32,
        "batch_size": 128,
    }
    return RunConfig(
        architecture=Architecture(model=model),
        hyperparameters=Hyperparameters(**{**hyperparameters, **changes}),
        training=TrainingSettings(max_epochs=max_epochs, backend=backend),
        seed=seed,
    )


def _losses(result: FitResult) -> list[tuple[float, float | None]]:
    return [(record.train_loss, record.val_loss) for record in result.history]


def _state(result: FitResult) -> list[torch.Tensor]:
    assert result.model is not None
    return list(result.model.state_dict().values())


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_one_seed_gives_one_result_bit_for_bit(
    cuda_data: DeviceData, name: str, backend: Backend
) -> None:
    first, again, other = (
        fit(_config(name, seed=s, backend=backend), cuda_data) for s in (1, 1, 2)
    )
    assert _losses(first) == _losses(again)
    assert all(torch.equal(p, q) for p, q in zip(_state(first), _state(again), strict=True))
    assert _losses(first) != _losses(other)


@pytest.mark.parametrize("name", ["original", "batchnorm"])
def test_a_warmed_up_training_is_bit_for_bit_one_that_is_not(
    cuda_data: DeviceData, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Eagerly: captured ones cannot do without."""
    warmed = fit(_config(name, backend=Backend.EAGER), cuda_data)
    monkeypatch.setattr(EagerEngine, "warm_up", lambda self: None)
    cold = fit(_config(name, backend=Backend.EAGER), cuda_data)
    assert _losses(warmed) == _losses(cold)
    assert all(torch.equal(p, q) for p, q in zip(_state(warmed), _state(cold), strict=True))


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_without_dropout_and_shuffling_the_gpu_trains_as_the_cpu_does(
    cuda_data: DeviceData, name: str, backend: Backend
) -> None:
    """Both start from the same weights; one batch of all windows leaves nothing to shuffle."""
    cpu_data = replace(
        cuda_data,
        train=_moved(cuda_data.train),
        val=_moved(cuda_data.val),
        test=_moved(cuda_data.test),
        minimum=cuda_data.minimum.cpu(),
        scale=cuda_data.scale.cpu(),
    )
    config = _config(
        name, backend=Backend.EAGER, dropout=0.0, batch_size=len(cuda_data.train), max_epochs=3
    )
    on_cpu = fit(config, cpu_data)
    on_gpu = fit(replace(config, training=config.training.but(backend=backend)), cuda_data)
    for gpu, cpu in zip(_losses(on_gpu), _losses(on_cpu), strict=True):
        assert gpu == pytest.approx(cpu, rel=1e-4)
    gpu_mql, cpu_mql = (
        evaluate(present(r.model), d).test_mql_mean
        for r, d in ((on_gpu, cuda_data), (on_cpu, cpu_data))
    )
    assert gpu_mql == pytest.approx(cpu_mql, rel=1e-3)


def _moved(split: DeviceSplit) -> DeviceSplit:
    tensors = {name: getattr(split, name) for name in DeviceSplit.__slots__}
    return DeviceSplit(
        **{name: t.cpu() if isinstance(t, torch.Tensor) else t for name, t in tensors.items()}
    )


def test_the_callers_random_state_and_arithmetic_are_untouched(cuda_data: DeviceData) -> None:
    torch.manual_seed(5)
    states = torch.get_rng_state(), torch.cuda.get_rng_state()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        fit(_config(max_epochs=1), cuda_data)
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(torch.cuda.get_rng_state(), states[1])


def test_products_are_in_full_fp32_whatever_the_caller_chose(cuda_data: DeviceData) -> None:
    expected = _losses(fit(_config(), cuda_data))
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert _losses(fit(_config(), cuda_data)) == expected
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


@pytest.mark.parametrize(("backend", "hidden_size"), [(Backend.GRAPH, 1024), (Backend.TRITON, 256)])
def test_memory_that_runs_out_is_given_back_and_the_next_training_is_right(
    cuda_data: DeviceData, backend: Backend, hidden_size: int
) -> None:
    expected = _losses(fit(_config(backend=backend), cuda_data))
    held = torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    # A quarter of a GiB for the process: the network fits, activations of all windows do not.
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**28 / total)
    try:
        result = fit(
            _config(hidden_size=hidden_size, batch_size=len(cuda_data.train), backend=backend),
            cuda_data,
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.stopped_by is StopReason.OUT_OF_MEMORY
    assert result.message.startswith(f"out of memory with hidden_size {hidden_size}")
    assert "\n" not in result.message
    assert result.model is None
    del result
    assert torch.cuda.memory_allocated() <= held
    assert _losses(fit(_config(backend=backend), cuda_data)) == expected


def test_the_clock_is_read_when_the_device_is_idle_and_not_in_callbacks(
    cuda_data: DeviceData,
) -> None:
    def wait(record: EpochRecord) -> None:
        torch.ones(4096, 4096, device="cuda").matmul(torch.ones(4096, 4096, device="cuda"))
        time.sleep(0.2)

    result = fit(_config(max_epochs=3), cuda_data, on_epoch=wait)
    assert 0.6 <= result.total_s - result.setup_s - result.wall_clock_s < 0.6 + 0.15
    assert result.peak_memory_bytes > 2**20


@pytest.mark.parametrize("backend", CUDA_BACKENDS)
def test_divergence_and_interruption_are_outcomes(cuda_data: DeviceData, backend: Backend) -> None:
    nothing = torch.full_like(cuda_data.train.targets, math.nan)
    broken = replace(cuda_data, train=replace(cuda_data.train, targets=nothing))
    assert fit(_config(backend=backend), broken).stopped_by is StopReason.DIVERGED
    interrupted = fit(
        _config(backend=backend), cuda_data, should_stop=lambda: StopReason.INTERRUPTED
    )
    assert (interrupted.stopped_by, interrupted.epochs) == (StopReason.INTERRUPTED, 0)
