"""Settings of training on a GPU: captured as they are plainly, and refused where they cannot be."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

from tests.support.backend_trainings import config_of, losses
from tests.support.fitted_results import losses_of, same_weights
from tuner.config import Architecture, Backend, CompileMode, Precision, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training import step as loss_scale
from tuner.training.checkpoint import CheckpointFiles
from tuner.training.clock import exact_fp32, seeded
from tuner.training.engines.captured import GraphEngine
from tuner.training.engines.choose import make_engine, what_auto_means
from tuner.training.step import Step

pytestmark = pytest.mark.slow


def config(
    backend: Backend, model: str = "original", *, dropout: float = 0.0, batch: int = 64, **more: Any
) -> RunConfig:
    plain = config_of(model, backend, dropout=dropout, batch_size=batch)
    return dataclasses.replace(plain, training=plain.training.but(**more))


def gradient(cuda_data: DeviceData, given: RunConfig) -> torch.Tensor:
    """Of an update by the same 256 windows, unclipped."""
    with exact_fp32(), seeded(0, torch.device("cuda")):
        model = build_model(given.architecture, cuda_data.shapes, given.hyperparameters).cuda()
        step = Step(given, cuda_data, model.train())
        index = torch.arange(256, device="cuda")
        step.train_on(cuda_data.train, index, given.hyperparameters.batch_size)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_accumulated_batches_have_the_gradient_of_one_large_batch(cuda_data: DeviceData) -> None:
    whole = gradient(cuda_data, config(Backend.EAGER, batch=256, gradient_clip=1e9))
    parts = gradient(cuda_data, config(Backend.EAGER, batch=64, accumulate=4, gradient_clip=1e9))
    assert (parts - whole).abs().max() <= 1e-6
    assert (parts - whole).norm() <= 1e-6 * whole.norm()


@pytest.mark.parametrize("backend", [Backend.GRAPH, Backend.COMPILE])
def test_captured_accumulation_follows_the_plain_one_and_the_large_batch(
    cuda_data: DeviceData, backend: Backend
) -> None:
    captured = losses(config(backend, accumulate=4), cuda_data)
    assert captured == pytest.approx(losses(config(Backend.EAGER, accumulate=4), cuda_data), 1e-3)
    assert captured == pytest.approx(losses(config(Backend.EAGER, batch=256), cuda_data), 1e-3)


def test_captured_accumulation_is_the_same_bit_for_bit_every_time(cuda_data: DeviceData) -> None:
    """Branches run on other streams, batch after batch in one capture."""
    given = config(Backend.GRAPH, dropout=0.2, accumulate=4)
    first = losses(given, cuda_data)
    assert all(losses(given, cuda_data) == first for _ in range(3))


@pytest.mark.parametrize("backend", [Backend.AUTO, Backend.TRITON])
def test_the_fused_kernels_do_not_accumulate_and_say_so(
    cuda_data: DeviceData, backend: Backend
) -> None:
    result = fit(config(backend, accumulate=2, max_epochs=1), cuda_data)
    assert result.backend is Backend.GRAPH
    if backend is Backend.TRITON:
        assert "after every batch, accumulate is 2" in result.backend_fallback


def test_fp16_is_captured_and_agrees_with_the_plain_training(cuda_data: DeviceData) -> None:
    """Compiled, half precision is held in engines/test_compiled.py."""
    plain = fit(config(Backend.EAGER, precision=Precision.FP16), cuda_data)
    captured = fit(config(Backend.GRAPH, precision=Precision.FP16), cuda_data)
    assert (captured.backend, captured.backend_fallback) == (Backend.GRAPH, "")
    assert captured.precision is Precision.FP16
    for ours, theirs in zip(losses_of(captured), losses_of(plain), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-2)
    full = fit(config(Backend.EAGER), cuda_data)
    assert captured.best_val_loss == pytest.approx(full.best_val_loss, rel=0.05)


def test_a_captured_update_that_overflows_is_skipped_and_the_scale_falls(
    cuda_data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the host: the first replays change no weight, later ones do."""
    monkeypatch.setattr(loss_scale, "INITIAL", 2.0**60)
    given = config(Backend.GRAPH, precision=Precision.FP16, accumulate=2)
    with exact_fp32(), seeded(0, torch.device("cuda")):
        model = build_model(given.architecture, cuda_data.shapes, given.hyperparameters).cuda()
        engine = make_engine(given, cuda_data, model)
        assert isinstance(engine, GraphEngine)
        engine.warm_up()
        assert engine.state()[loss_scale.SCALE].item() == 2.0**60, "warm-up leaves no trace"
        before = [p.clone() for p in model.parameters()]
        order = torch.arange(len(cuda_data.train), device="cuda")
        engine.train_epoch(order, 1e-3, lambda: StopReason.INTERRUPTED)
        scale = engine.state()[loss_scale.SCALE].item()
        assert scale == 2.0**59
        assert all(map(torch.equal, before, model.parameters()))
        for _ in range(8):
            engine.train_epoch(order, 1e-3, lambda: None)
        assert engine.state()[loss_scale.SCALE].item() < scale
        assert not all(map(torch.equal, before, model.parameters()))
        assert all(p.isfinite().all() for p in model.parameters())
        engine.close()


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.GRAPH])
def test_an_interrupted_fp16_training_goes_on_with_the_same_bits(
    cuda_data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    monkeypatch.setattr("tuner.training.checkpoint.LONG_EPOCH_S", math.inf)
    given = config(
        backend, dropout=0.2, precision=Precision.FP16, accumulate=2, validate_every=2, max_epochs=5
    )
    files = CheckpointFiles(
        folder=tmp_path, stem="trial-0", identity={"seed": 3}, every_s=0.0, least_s=0.0
    )
    whole = fit(given, cuda_data)
    updates = math.ceil(len(cuda_data.train) / 128)
    asked = iter(range(10**6))
    first = fit(
        given,
        cuda_data,
        checkpoints=files,
        should_stop=lambda: StopReason.INTERRUPTED if next(asked) == 2 * updates + 1 else None,
    )
    assert (first.stopped_by, first.epochs) == (StopReason.INTERRUPTED, 3)
    resumed = fit(given, cuda_data, checkpoints=files)
    assert resumed.resumed_from == 3
    assert losses_of(resumed) == losses_of(whole)
    assert same_weights(resumed, whole)


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("original", Precision.FP32),
        ("original", Precision.FP16),
        ("batchnorm", Precision.FP32),
    ],
)
def test_checkpointed_activations_give_the_same_bits(
    cuda_data: DeviceData, model: str, precision: Precision
) -> None:
    plain, checkpointed = (
        fit(
            config(
                Backend.EAGER,
                model,
                dropout=0.3,
                max_epochs=2,
                precision=precision,
                checkpoint_activations=on,
            ),
            cuda_data,
        )
        for on in (False, True)
    )
    assert losses_of(plain) == losses_of(checkpointed)
    assert same_weights(plain, checkpointed)


def test_checkpointed_activations_take_less_memory(cuda_data: DeviceData) -> None:
    plain, checkpointed = (
        fit(
            config(Backend.EAGER, batch=1024, max_epochs=1, checkpoint_activations=on), cuda_data
        ).peak_memory_bytes
        for on in (False, True)
    )
    assert checkpointed < 0.95 * plain


def test_with_checkpoints_auto_is_plain_and_captures_are_refused(cuda_data: DeviceData) -> None:
    given = config(Backend.AUTO, checkpoint_activations=True, max_epochs=1)
    assert what_auto_means(given, cuda_data) is None
    result = fit(given, cuda_data)
    assert result.backend is Backend.EAGER
    assert "random numbers" in result.backend_fallback
    for backend in (Backend.GRAPH, Backend.COMPILE, Backend.TRITON):
        with pytest.raises(UsageError, match="choose eager or auto"):
            fit(config(backend, checkpoint_activations=True), cuda_data)


@pytest.mark.parametrize(
    ("mode", "accumulate"),
    [
        (CompileMode.MAX_AUTOTUNE, 1),
        (CompileMode.REDUCE_OVERHEAD, 2),
    ],
)
def test_every_compile_mode_trains_as_the_plain_step(
    cuda_data: DeviceData, mode: CompileMode, accumulate: int
) -> None:
    """Around our own kernels with one batch an update, around the whole step with two. The default
    mode accumulates in a test above, and does all else in test_compiled.py.

    One block has as few different kernels as there can be: each is tuned by itself. Products are
    tuned among cuBLAS's alone, not among the hundreds that Triton could have.
    """
    one_block = Architecture(model="original", settings={"n_blocks": 1})
    given = config(Backend.COMPILE, compile_mode=mode, accumulate=accumulate, max_epochs=3)
    given = dataclasses.replace(given, architecture=one_block)
    with inductor_config.patch(max_autotune_gemm_backends="ATEN"):
        result = fit(given, cuda_data)
    assert (result.backend, result.backend_fallback) == (Backend.COMPILE, "")
    eager = config(Backend.EAGER, accumulate=accumulate, max_epochs=3)
    plain = fit(dataclasses.replace(eager, architecture=one_block), cuda_data)
    for ours, theirs in zip(losses_of(result), losses_of(plain), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.GRAPH, Backend.TRITON])
def test_seldom_validation_trains_the_same_weights(cuda_data: DeviceData, backend: Backend) -> None:
    every = fit(config(backend, dropout=0.2, max_epochs=4), cuda_data)
    seldom = fit(config(backend, dropout=0.2, max_epochs=4, validate_every=3), cuda_data)
    expected = [None, None, every.history[2].val_loss, every.history[3].val_loss]
    assert [record.val_loss for record in seldom.history] == expected
    assert [r.train_loss for r in seldom.history] == [r.train_loss for r in every.history]
