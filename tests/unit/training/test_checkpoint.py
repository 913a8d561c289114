"""An interrupted training goes on from its checkpoint as if nothing had happened, or from zero."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpointed_trainings import assert_same, files, interrupted
from tests.support.present import present
from tuner.config import RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import fit
from tuner.training.checkpoint import LONG_EPOCH_S, Checkpointer, CheckpointFiles, Progress
from tuner.training.clock import Clock

Configure = Callable[..., RunConfig]


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: an epoch is long only where a test says so."""
    monkeypatch.setattr("tuner.training.checkpoint.LONG_EPOCH_S", math.inf)


@pytest.mark.parametrize("name", ["batchnorm", "original"])
def test_a_resumed_training_equals_an_uninterrupted_one_bit_for_bit(
    data: DeviceData, run_config: Configure, tmp_path: Path, name: str
) -> None:
    """Early stopping ends it: patience, best weights and decay all cross the interruption."""
    config = run_config(
        name,
        learning_rate=0.01,
        weight_decay=0.01,
        dropout=0.2,
        learning_rate_decay=0.9,
        patience=3,
        min_delta=0.1,
    )
    config = replace(config, training=config.training.but(max_epochs=30))
    whole = fit(config, data)
    assert whole.stopped_by is StopReason.CONVERGED
    assert 4 <= whole.epochs <= 12
    first = interrupted(config, data, files(tmp_path), epoch=whole.epochs - 2)
    began = time.perf_counter()
    resumed = fit(config, data, checkpoints=files(tmp_path))
    spent = time.perf_counter() - began
    assert_same(resumed, whole)
    assert resumed.resumed_from == whole.epochs - 2
    assert first.checkpoint_load_s is None
    assert 0 < present(resumed.checkpoint_load_s) < spent
    assert resumed.history[: first.epochs] == first.history
    # The clock is the sum: what the epochs up to the checkpoint took, and what the rest took here.
    carried = first.history[-1].elapsed_s
    assert carried < resumed.wall_clock_s < carried + spent
    assert resumed.setup_s == first.setup_s
    assert resumed.total_s > resumed.setup_s + resumed.wall_clock_s


def test_twice_interrupted_is_no_different(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    config = run_config(max_epochs=5)
    interrupted(config, data, files(tmp_path), epoch=2)
    steps = math.ceil(len(data.train) / 64)
    polls = iter(range(1000))
    fit(
        config,
        data,
        checkpoints=files(tmp_path),
        should_stop=lambda: StopReason.INTERRUPTED if next(polls) == steps + 1 else None,
    )
    resumed = fit(config, data, checkpoints=files(tmp_path))
    assert resumed.resumed_from == 4
    assert_same(resumed, fit(config, data))


def test_keeping_checkpoints_changes_nothing(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    kept = fit(run_config(), data, checkpoints=files(tmp_path, every_s=1e-9))
    assert_same(kept, fit(run_config(), data))


def test_files_are_written_when_due_off_the_clock_and_the_last_two_are_kept(
    data: DeviceData, run_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(self: CheckpointFiles, *given: Any) -> None:
        time.sleep(0.2)
        save(self, *given)

    save = CheckpointFiles.save
    monkeypatch.setattr(CheckpointFiles, "save", slowly)
    result = fit(run_config(max_epochs=5), data, checkpoints=files(tmp_path, every_s=1e-9))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["trial-3-epoch-000003.safetensors", "trial-3-epoch-000004.safetensors"]
    assert result.total_s - result.setup_s - result.wall_clock_s >= 0.8
    files(tmp_path).discard()
    assert list(tmp_path.iterdir()) == []


def test_without_an_interval_only_an_interruption_writes(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    fit(run_config(), data, checkpoints=files(tmp_path))
    fit(run_config(), data, checkpoints=files(tmp_path, every_s=1000.0))
    assert list(tmp_path.iterdir()) == []
    fit(run_config(), data, checkpoints=files(tmp_path), should_stop=lambda: StopReason.INTERRUPTED)
    assert list(tmp_path.iterdir()) == [], "no epoch was over"


def asked_in_epoch(data: DeviceData, epoch: int) -> Callable[[], StopReason | None]:
    """An interruption after the second step of that epoch."""
    polls = itertools.count(1)
    when = math.ceil(len(data.train) / 64) * (epoch - 1) + 2
    return lambda: StopReason.INTERRUPTED if next(polls) == when else None


def test_a_training_of_too_few_seconds_ends_at_once_and_leaves_nothing(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    store = files(tmp_path, every_s=1e-9, least_s=3600.0)
    result = fit(run_config(), data, checkpoints=store, should_stop=asked_in_epoch(data, 3))
    assert result.message == "stopped during epoch 3"
    assert list(tmp_path.iterdir()) == []


def test_a_stop_in_a_short_epoch_waits_for_its_end_and_that_is_what_is_written(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    result = fit(
        run_config(), data, checkpoints=files(tmp_path), should_stop=asked_in_epoch(data, 2)
    )
    assert (result.stopped_by, result.message) == (StopReason.INTERRUPTED, "stopped after epoch 2")
    assert [path.name for path in tmp_path.iterdir()] == ["trial-3-epoch-000002.safetensors"]


def test_a_stop_in_an_epoch_that_ends_the_training_comes_too_late(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    result = fit(
        run_config(), data, checkpoints=files(tmp_path), should_stop=asked_in_epoch(data, 3)
    )
    assert (result.stopped_by, result.epochs) == (StopReason.EPOCH_LIMIT, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_stop_in_a_long_epoch_ends_it_at_once_and_the_one_before_is_written(
    data: DeviceData, run_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.training.checkpoint.LONG_EPOCH_S", LONG_EPOCH_S)
    looks = itertools.count()
    monkeypatch.setattr(  # the function `fit` hides its module
        sys.modules["tuner.training.fit"],
        "Clock",
        functools.partial(Clock, now=lambda: LONG_EPOCH_S * next(looks)),
    )
    result = fit(
        run_config(), data, checkpoints=files(tmp_path), should_stop=asked_in_epoch(data, 3)
    )
    assert result.message == "stopped during epoch 3"
    assert [path.name for path in tmp_path.iterdir()] == ["trial-3-epoch-000002.safetensors"]


def test_between_short_epochs_nothing_is_copied_unless_a_file_is_due(
    data: DeviceData, run_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def counted(self: Checkpointer, progress: Progress) -> None:
        held.append(progress.epoch)
        hold(self, progress)

    hold = Checkpointer.hold
    monkeypatch.setattr(Checkpointer, "hold", counted)
    fit(run_config(), data, checkpoints=files(tmp_path))
    assert held == []
    fit(run_config(), data, checkpoints=files(tmp_path, every_s=1e-9))
    assert held == [1, 2]
