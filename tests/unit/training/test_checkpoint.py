"""A training that was interrupted goes on from its checkpoint as if nothing had happened, or starts from zero."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tuner.config import RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import FitResult, fit
from tuner.training.checkpoint import Checkpoint, CheckpointFiles, from_bytes, to_bytes

Configure = Callable[..., RunConfig]
IDENTITY = {"study": "tiny", "trial": 3, "seed": 7}


def files(folder: Path, **changes: object) -> CheckpointFiles:
    given = {"folder": folder, "stem": "trial-3", "identity": IDENTITY, "every_s": 0.0, **changes}
    return CheckpointFiles(**given)


def interrupted(config: RunConfig, data: DeviceData, store: CheckpointFiles, *, epoch: int) -> FitResult:
    """Stops in the middle of the epoch after `epoch`."""
    steps = math.ceil(len(data.train) / config.hyperparameters.batch_size)
    asked = 0

    def stop() -> StopReason | None:
        nonlocal asked
        asked += 1
        return StopReason.INTERRUPTED if asked == steps * epoch + 2 else None

    result = fit(config, data, should_stop=stop, checkpoints=store)
    assert (result.stopped_by, result.epochs) == (StopReason.INTERRUPTED, epoch)
    return result


def losses(result: FitResult) -> list[tuple[float, float, float]]:
    return [(record.train_loss, record.val_loss, record.learning_rate) for record in result.history]


def assert_same(one: FitResult, other: FitResult) -> None:
    assert losses(one) == losses(other)
    assert (one.stopped_by, one.best_epoch, one.best_val_loss) == (
        other.stopped_by,
        other.best_epoch,
        other.best_val_loss,
    )
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)


@pytest.mark.parametrize("name", ["batchnorm", "original"])
def test_a_resumed_training_equals_an_uninterrupted_one_bit_for_bit(
    data: DeviceData, run_config: Configure, tmp_path: Path, name: str
) -> None:
    """Early stopping ends it: patience, the best weights and the learning rate's decay all cross the interruption."""
    config = run_config(
        name, learning_rate=0.01, weight_decay=0.01, dropout=0.2, learning_rate_decay=0.9, patience=3, min_delta=0.1
    )
    config = replace(config, training=replace(config.training, max_epochs=30))
    whole = fit(config, data)
    assert whole.stopped_by is StopReason.CONVERGED
    assert 4 <= whole.epochs <= 12
    first = interrupted(config, data, files(tmp_path), epoch=whole.epochs - 2)
    began = time.perf_counter()
    resumed = fit(config, data, checkpoints=files(tmp_path))
    spent = time.perf_counter() - began
    assert_same(resumed, whole)
    assert resumed.resumed_from == whole.epochs - 2
    assert resumed.history[: first.epochs] == first.history
    # The clock is the sum: what the epochs up to the checkpoint took, and what the rest took here.
    carried = first.history[-1].elapsed_s
    assert carried < resumed.wall_clock_s < carried + spent
    assert resumed.setup_s == first.setup_s
    assert resumed.total_s > resumed.setup_s + resumed.wall_clock_s


def test_twice_interrupted_is_no_different(data: DeviceData, run_config: Configure, tmp_path: Path) -> None:
    config = run_config(max_epochs=5)
    interrupted(config, data, files(tmp_path), epoch=1)
    steps = math.ceil(len(data.train) / 64)
    polls = iter(range(1000))
    fit(
        config,
        data,
        checkpoints=files(tmp_path),
        should_stop=lambda: StopReason.INTERRUPTED if next(polls) == steps + 1 else None,
    )
    resumed = fit(config, data, checkpoints=files(tmp_path))
    assert resumed.resumed_from == 2
    assert_same(resumed, fit(config, data))


def test_keeping_checkpoints_changes_nothing(data: DeviceData, run_config: Configure, tmp_path: Path) -> None:
    kept = fit(run_config(), data, checkpoints=files(tmp_path, every_s=1e-9))
    assert_same(kept, fit(run_config(), data))


def test_files_are_written_when_due_off_the_clock_and_the_last_two_are_kept(
    data: DeviceData, run_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(self: CheckpointFiles, *given: object) -> None:
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


@pytest.fixture(scope="module")
def two_files(data: DeviceData, run_config: Configure, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Checkpoints of the second and the third epoch of one training."""
    folder = tmp_path_factory.mktemp("two")
    interrupted(run_config(max_epochs=5), data, files(folder, every_s=1e-9), epoch=3)
    older, newer = sorted(folder.iterdir())
    return older.read_bytes(), newer.read_bytes()


def edited(content: bytes, **progress: object) -> bytes:
    """A file whose digest is right and whose figures are made up."""
    checkpoint = from_bytes(content, IDENTITY)
    made_up = checkpoint.progress.model_copy(update=progress)
    return to_bytes(Checkpoint(progress=made_up, tensors=checkpoint.tensors), IDENTITY)


def with_tensor(content: bytes, name: str, tensor: torch.Tensor) -> bytes:
    checkpoint = from_bytes(content, IDENTITY)
    return to_bytes(Checkpoint(progress=checkpoint.progress, tensors={**checkpoint.tensors, name: tensor}), IDENTITY)


def bit_flipped(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


SPOILS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda content: b"", "truncated"),
    "truncated": (lambda content: content[: len(content) // 2], "truncated"),
    "a pickle": (lambda content: b"\x80\x04cos\nsystem\n(S'false'\ntR.", "no checkpoint"),
    "a header of terabytes": (lambda content: (1 << 42).to_bytes(8, "little") + content[8:], "no checkpoint"),
    "a bit flipped": (bit_flipped, "damaged"),
    "weights alone": (lambda content: safetensors.torch.save({"a": torch.ones(3)}), "no checkpoint"),
    "more epochs than the training has": (
        lambda content: edited(content, epoch=9, history=tuple(
            replace(from_bytes(content, IDENTITY).progress.history[0], epoch=n) for n in range(1, 10))),
        "its training was over",
    ),
    "an epoch without its history": (lambda content: edited(content, epoch=9), "figures make no sense"),
    "a clock that runs backwards": (lambda content: edited(content, elapsed_s=-1.0), "figures make no sense"),
    "a clock before its history": (lambda content: edited(content, elapsed_s=0.0), "figures make no sense"),
    "a weight of another shape": (lambda content: with_tensor(content, "model/0", torch.ones(99)), "model/0 is"),
    "half an optimiser": (
        lambda content: with_tensor(content, "optimizer/0/exp_avg", torch.ones(99)), "does not fit parameter 0"),
    "a random state of noise": (
        lambda content: with_tensor(content, "random/cpu", torch.ones(7, dtype=torch.uint8)), "is not used"),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS.keys())
def test_a_file_that_cannot_be_used_is_skipped_with_a_notice_for_the_one_before(
    data: DeviceData,
    run_config: Configure,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    two_files: tuple[bytes, bytes],
    spoil: tuple[Callable[[bytes], bytes], str],
) -> None:
    how, notice = spoil
    (tmp_path / "trial-3-epoch-000002.safetensors").write_bytes(two_files[0])
    (tmp_path / "trial-3-epoch-000003.safetensors").write_bytes(how(two_files[1]))
    with caplog.at_level(logging.WARNING):
        result = fit(
            run_config(max_epochs=5), data, checkpoints=files(tmp_path), should_stop=lambda: StopReason.INTERRUPTED
        )
    assert (result.resumed_from, result.epochs) == (2, 2)
    assert notice in caplog.text


def test_where_none_can_be_used_the_training_and_its_clock_start_from_zero(
    data: DeviceData, run_config: Configure, tmp_path: Path, two_files: tuple[bytes, bytes]
) -> None:
    noise = torch.zeros(7)
    (tmp_path / "trial-3-epoch-000002.safetensors").write_bytes(with_tensor(two_files[1], "model/0", noise))
    (tmp_path / "trial-3-epoch-000003.safetensors").write_bytes(with_tensor(two_files[1], "random/cpu", noise))
    (tmp_path / "trial-3-epoch-000004.safetensors").mkdir()
    os.mkfifo(tmp_path / "trial-3-epoch-000005.safetensors")
    began = time.perf_counter()
    result = fit(run_config(max_epochs=2), data, checkpoints=files(tmp_path))
    assert result.wall_clock_s < time.perf_counter() - began
    assert result.resumed_from == 0
    assert_same(result, fit(run_config(max_epochs=2), data))


def test_another_trainings_file_is_refused_by_name(two_files: tuple[bytes, bytes]) -> None:
    for key, value in {"study": "other", "trial": 4, "seed": 8, "device": "H200"}.items():
        with pytest.raises(ValueError, match=f"another training's: it differs in {key}$"):
            from_bytes(two_files[0], IDENTITY | {key: value})


def test_notes_travel_with_a_checkpoint(data: DeviceData, run_config: Configure, tmp_path: Path) -> None:
    notes = {"parts": [[1.5, 2.25]], "contaminated": False}
    interrupted(run_config(), data, files(tmp_path, notes=lambda: notes), epoch=1)
    told: list[Checkpoint] = []
    fit(run_config(), data, checkpoints=files(tmp_path), on_resume=told.append)
    assert [checkpoint.notes for checkpoint in told] == [notes]
    assert told[0].progress.epoch == 1


def test_a_disk_without_space_costs_the_checkpoint_and_not_the_training(
    data: DeviceData,
    run_config: Configure,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("tuner.training.checkpoint.write_durably", full)
    result = fit(run_config(), data, checkpoints=files(tmp_path, every_s=1e-9))
    assert result.stopped_by is StopReason.EPOCH_LIMIT
    assert f"no checkpoint in {tmp_path}: the disk is full" in caplog.text


def test_a_file_is_readable_by_anyone_with_safetensors(two_files: tuple[bytes, bytes], tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    path.write_bytes(two_files[0])
    with safetensors.safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["progress"])["epoch"] == 2
        assert {name.split("/")[0] for name in file.keys()} == {"model", "optimizer", "best", "random"}  # noqa: SIM118
