"""How a training ends: by itself, by a limit, by whoever listens, or by going wrong."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fitted_results import losses_of, validation_loss
from tests.support.present import present
from tuner.config import Backend, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import EpochRecord, fit
from tuner.training.clock import Clock
from tuner.training.run_state import EarlyStopping

Configure = Callable[..., RunConfig]


def test_convergence_follows_early_stopping_on_the_recorded_losses(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(run_config(learning_rate=0.03, max_epochs=200, patience=2, min_delta=1e-4), data)
    assert result.stopped_by is StopReason.CONVERGED
    rule = EarlyStopping(patience=2, min_delta=1e-4)
    assert [rule.update(present(record.val_loss)) for record in result.history] == [False] * (
        result.epochs - 1
    ) + [True]
    assert result.epochs < 200


def test_the_epoch_limit_ends_a_training(data: DeviceData, run_config: Configure) -> None:
    result = fit(run_config(max_epochs=2), data)
    assert result.stopped_by is StopReason.EPOCH_LIMIT
    assert result.message == "epoch limit of 2 reached"
    assert result.epochs == len(result.history) == 2


def test_the_time_limit_cuts_an_epoch_short_and_still_leaves_a_validated_result(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(run_config(time_limit_s=1e-9), data)
    assert result.stopped_by is StopReason.TIME_LIMIT
    assert result.epochs == result.best_epoch == 1
    assert validation_loss(result, data) == pytest.approx(result.best_val_loss, rel=1e-5)
    assert result.samples_per_s * result.wall_clock_s == pytest.approx(64)  # one step


def test_the_time_limit_counts_the_clock_and_not_the_callback(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def look() -> float:
        nonlocal now
        now += 0.001
        return now

    def wait(record: EpochRecord) -> None:
        nonlocal now
        now += 3600.0

    # The function `fit` hides its module.
    monkeypatch.setattr(
        sys.modules["tuner.training.fit"], "Clock", functools.partial(Clock, now=look)
    )
    assert (
        fit(run_config(max_epochs=2, time_limit_s=5.0), data, on_epoch=wait).stopped_by
        is StopReason.EPOCH_LIMIT
    )


def test_the_callback_hears_of_every_epoch_and_can_prune(
    data: DeviceData, run_config: Configure
) -> None:
    heard: list[EpochRecord] = []

    def prune_second(record: EpochRecord) -> StopReason | None:
        heard.append(record)
        return StopReason.PRUNED if record.epoch == 2 else None

    result = fit(run_config(max_epochs=5), data, on_epoch=prune_second)
    assert result.stopped_by is StopReason.PRUNED
    assert result.message == "stopped after epoch 2"
    assert tuple(heard) == result.history
    assert result.epochs == 2


def test_a_training_that_ends_by_itself_is_not_pruned_with_its_last_epoch(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(
        run_config(max_epochs=2),
        data,
        on_epoch=lambda r: StopReason.PRUNED if r.epoch == 2 else None,
    )
    assert result.stopped_by is StopReason.EPOCH_LIMIT


def test_an_interruption_takes_effect_within_one_step(
    data: DeviceData, run_config: Configure
) -> None:
    steps_per_epoch = math.ceil(len(data.train) / 64)
    asked = 0

    def interrupt() -> StopReason | None:
        nonlocal asked
        asked += 1
        return StopReason.INTERRUPTED if asked == steps_per_epoch + 2 else None

    result = fit(run_config(max_epochs=5), data, should_stop=interrupt)
    assert result.stopped_by is StopReason.INTERRUPTED
    assert result.message == "stopped during epoch 2"
    assert asked == steps_per_epoch + 2
    assert result.epochs == 1
    assert result.model is not None
    assert validation_loss(result, data) == pytest.approx(result.best_val_loss, rel=1e-5)


def test_an_interruption_before_the_first_epoch_is_over_leaves_no_figures(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(run_config(), data, should_stop=lambda: StopReason.INTERRUPTED)
    assert (result.epochs, result.best_epoch, result.history) == (0, 0, ())
    assert math.isnan(result.best_val_loss)
    assert math.isnan(result.time_to_best_s)


def test_a_loss_that_is_no_number_is_an_outcome(data: DeviceData, run_config: Configure) -> None:
    broken = replace(
        data, train=replace(data.train, targets=torch.full_like(data.train.targets, math.nan))
    )
    heard: list[EpochRecord] = []
    result = fit(run_config(), broken, on_epoch=heard.append)
    assert result.stopped_by is StopReason.DIVERGED
    assert "epoch 1" in result.message
    assert "nan" in result.message
    assert result.message.endswith("; try a learning_rate below 0.001 or a gradient_clip below 1")
    assert (heard, result.history) == ([], ())


def test_a_training_that_diverges_later_keeps_its_best_weights(
    data: DeviceData, run_config: Configure
) -> None:
    """The learning rate is multiplied by a huge factor after the first epoch."""
    plain = run_config(learning_rate=1e-3, max_epochs=20)
    growing = plain.training.model_copy(update={"learning_rate_decay": 1e30})  # beyond its bounds
    result = fit(replace(plain, training=growing), data)
    assert result.stopped_by is StopReason.DIVERGED
    assert result.best_epoch == result.epochs == 1
    assert validation_loss(result, data) == pytest.approx(result.best_val_loss, rel=1e-5)


def test_memory_that_runs_out_is_an_outcome_and_the_next_training_is_right(
    data: DeviceData, run_config: Configure
) -> None:
    expected = losses_of(fit(run_config(max_epochs=1), data))
    result = fit(run_config(hidden_size=10**13), data)
    assert result.stopped_by is StopReason.OUT_OF_MEMORY
    assert result.message.startswith(
        "out of memory with hidden_size 10000000000000 and batch_size 64: "
    )
    assert result.message.endswith("more accumulate, checkpoint_activations or precision bf16")
    assert "\n" not in result.message
    assert result.model is None
    assert result.epochs == 0
    assert not result.context_lost
    assert losses_of(fit(run_config(max_epochs=1), data)) == expected


HUNGRY = """
import torch
from torch import nn


class Hungry(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        {constructor}

    def forward(self, past, future, static):
        return torch.empty(2**50)
"""


@pytest.mark.parametrize(
    "constructor",
    [
        "torch.empty(2**50)",
        "raise MemoryError('none')",
        "self.table = nn.Linear(10**9, 10**9)",
        "pass",
    ],
)
def test_memory_that_a_class_of_ones_own_runs_out_of_is_an_outcome_on_a_cpu(
    data: DeviceData, run_config: Configure, tmp_path: Path, constructor: str
) -> None:
    """The process is as good as before: the next trial need not wait for another."""
    file = tmp_path / "hungry.py"
    file.write_text(HUNGRY.format(constructor=constructor), encoding="utf-8")
    result = fit(run_config(f"{file}:Hungry"), data)
    assert result.stopped_by is StopReason.OUT_OF_MEMORY
    assert result.message.startswith("out of memory with hidden_size 8 and batch_size 64: ")
    assert not result.context_lost
    assert fit(run_config(max_epochs=1), data).stopped_by is StopReason.EPOCH_LIMIT


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"hidden_size": None, "dropout": None}, "batch_size 64"),
        ({"own": {"depth": 7, "norm": "layer"}}, "hidden_size 8, depth 7 and batch_size 64"),
    ],
)
def test_memory_that_runs_out_names_the_sizes_that_there_are(
    data: DeviceData,
    run_config: Configure,
    tmp_path: Path,
    changes: dict[str, Any],
    sizes: str,
) -> None:
    file = tmp_path / "hungry.py"
    source = HUNGRY.format(constructor="pass").replace("*, hidden_size, dropout", "**sizes")
    file.write_text(source, encoding="utf-8")
    config = run_config(f"{file}:Hungry")
    hyperparameters = replace(config.hyperparameters, **changes)
    result = fit(replace(config, hyperparameters=hyperparameters), data)
    assert result.message.startswith(f"out of memory with {sizes}: ")


class Cut:
    """The end of a capture that was cut short, as CUDA has it."""

    def __enter__(self) -> None:
        """Nothing is captured."""

    def __exit__(self, *_: object) -> None:
        raise RuntimeError(
            "CUDA error: operation failed due to a previous error during capture\nCompile with ..."
        )


class WithoutMemory:
    """In the place of an engine: it captures, in which memory runs out, or something else fails."""

    backend, fallback = Backend.GRAPH, ""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def warm_up(self) -> None:
        with Cut():
            raise self.failure


@pytest.mark.parametrize(
    "failure",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_memory_that_runs_out_in_a_capture_is_the_outcome_though_the_captures_end_fails_too(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(
        import_module("tuner.training.fit"), "make_engine", lambda *_: WithoutMemory(failure)
    )
    result = fit(run_config(), data)
    assert result.stopped_by is StopReason.OUT_OF_MEMORY
    assert f": {str(failure).splitlines()[0]}; try smaller sizes" in result.message
    assert result.context_lost


def test_what_else_goes_wrong_in_a_capture_is_raised(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        import_module("tuner.training.fit"),
        "make_engine",
        lambda *_: WithoutMemory(ValueError("another reason")),
    )
    with pytest.raises(RuntimeError, match="previous error during capture"):
        fit(run_config(), data)
