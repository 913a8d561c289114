"""A checkpoint's file: what spoils it, what it says, and what a full disk costs."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests.support.checkpointed_trainings import IDENTITY, assert_same, files, interrupted
from tuner.config import EpochRecord, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import fit
from tuner.training.checkpoint import Checkpoint, CheckpointFiles, from_bytes, to_bytes

Configure = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def two_files(
    data: DeviceData, run_config: Configure, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bytes, bytes]:
    """Checkpoints of the second and the third epoch of one training."""
    folder = tmp_path_factory.mktemp("two")
    fit(
        run_config(max_epochs=5),
        data,
        checkpoints=files(folder, every_s=1e-9),
        on_epoch=lambda record: StopReason.INTERRUPTED if record.epoch == 3 else None,
    )
    older, newer = sorted(folder.iterdir())
    return older.read_bytes(), newer.read_bytes()


def edited(content: bytes, **progress: object) -> bytes:
    """A file whose digest is right and whose figures are made up."""
    checkpoint = from_bytes(content, IDENTITY)
    made_up = checkpoint.progress.model_copy(update=progress)
    return to_bytes(Checkpoint(progress=made_up, tensors=checkpoint.tensors), IDENTITY)


def with_tensor(content: bytes, name: str, tensor: torch.Tensor) -> bytes:
    checkpoint = from_bytes(content, IDENTITY)
    return to_bytes(
        Checkpoint(progress=checkpoint.progress, tensors={**checkpoint.tensors, name: tensor}),
        IDENTITY,
    )


def bit_flipped(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


def nine_epochs(content: bytes) -> tuple[EpochRecord, ...]:
    first = from_bytes(content, IDENTITY).progress.history[0]
    return tuple(replace(first, epoch=n) for n in range(1, 10))


SPOILS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda content: b"", "truncated"),
    "truncated": (lambda content: content[: len(content) // 2], "truncated"),
    "a pickle": (lambda content: b"\x80\x04cos\nsystem\n(S'false'\ntR.", "no checkpoint"),
    "a header of terabytes": (
        lambda content: (1 << 42).to_bytes(8, "little") + content[8:],
        "no checkpoint",
    ),
    "a bit flipped": (bit_flipped, "damaged"),
    "weights alone": (
        lambda content: safetensors.torch.save({"a": torch.ones(3)}),
        "no checkpoint",
    ),
    "more epochs than the training has": (
        lambda content: edited(content, epoch=9, history=nine_epochs(content)),
        "its training was over",
    ),
    "an epoch without its history": (
        lambda content: edited(content, epoch=9),
        "figures make no sense",
    ),
    "a clock that runs backwards": (
        lambda content: edited(content, elapsed_s=-1.0),
        "figures make no sense",
    ),
    "a clock before its history": (
        lambda content: edited(content, elapsed_s=0.0),
        "figures make no sense",
    ),
    "a weight of another shape": (
        lambda content: with_tensor(content, "model/0", torch.ones(99)),
        "model/0 is",
    ),
    "half an optimiser": (
        lambda content: with_tensor(content, "optimizer/0/exp_avg", torch.ones(99)),
        "does not fit parameter 0",
    ),
    "a random state of noise": (
        lambda content: with_tensor(content, "random/cpu", torch.ones(7, dtype=torch.uint8)),
        "is not used",
    ),
}


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
            run_config(max_epochs=5),
            data,
            checkpoints=files(tmp_path),
            should_stop=lambda: StopReason.INTERRUPTED,
        )
    assert (result.resumed_from, result.epochs) == (2, 2)
    assert notice in caplog.text


def test_where_none_can_be_used_the_training_and_its_clock_start_from_zero(
    data: DeviceData, run_config: Configure, tmp_path: Path, two_files: tuple[bytes, bytes]
) -> None:
    noise = torch.zeros(7)
    (tmp_path / "trial-3-epoch-000002.safetensors").write_bytes(
        with_tensor(two_files[1], "model/0", noise)
    )
    (tmp_path / "trial-3-epoch-000003.safetensors").write_bytes(
        with_tensor(two_files[1], "random/cpu", noise)
    )
    (tmp_path / "trial-3-epoch-000004.safetensors").mkdir()
    os.mkfifo(tmp_path / "trial-3-epoch-000005.safetensors")
    began = time.perf_counter()
    result = fit(run_config(max_epochs=2), data, checkpoints=files(tmp_path))
    assert result.wall_clock_s < time.perf_counter() - began
    assert result.resumed_from == 0
    assert_same(result, fit(run_config(max_epochs=2), data))


def test_another_trainings_file_is_refused_by_name(two_files: tuple[bytes, bytes]) -> None:
    others: dict[str, str | int] = {"study": "other", "trial": 4, "seed": 8, "device": "H200"}
    for key, value in others.items():
        with pytest.raises(ValueError, match=f"another training's: it differs in {key}$"):
            from_bytes(two_files[0], IDENTITY | {key: value})


def test_notes_travel_with_a_checkpoint(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    notes = {"parts": [[1.5, 2.25]], "contaminated": False}
    interrupted(run_config(), data, files(tmp_path, notes=lambda: notes), epoch=2)
    told: list[Checkpoint] = []
    fit(run_config(), data, checkpoints=files(tmp_path), on_resume=told.append)
    assert [checkpoint.notes for checkpoint in told] == [notes]
    assert told[0].progress.epoch == 2


def test_less_than_a_second_on_the_clock_is_worth_no_file(tmp_path: Path) -> None:
    store = CheckpointFiles(folder=tmp_path, stem="trial-3", identity=IDENTITY, every_s=60.0)
    assert [store.worth(seconds) for seconds in (0.0, 0.99, 1.0)] == [False, False, True]


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


def test_a_file_is_readable_by_anyone_with_safetensors(
    two_files: tuple[bytes, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "one.safetensors"
    path.write_bytes(two_files[0])
    with safetensors.safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["progress"])["epoch"] == 2
        names = {name.split("/")[0] for name in file.keys()}  # noqa: SIM118 - it is no dict
    assert names == {"model", "optimizer", "best", "random"}
