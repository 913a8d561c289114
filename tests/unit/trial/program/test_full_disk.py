"""A program's trial whose disk is full: it goes on without a checkpoint, and no clock is wrong for
it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.programs import program_job, trained
from tuner.config import EpochRecord, StopReason
from tuner.trial.job import TrainerLostError
from tuner.trial.program.program_training import KeptFolder

KEEPS = """
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
open("starts", "a").write(f"{done}\\n")
say(started=True)
for number in range(done + 1, 4):
    time.sleep(0.02)
    epoch(number, 1 / number)
    open(mine, "w").write(str(number))
say(final={"test_mql": .5, "epochs": 3})
"""


@contextmanager
def full(folder: Path, *, spares: str = "nothing") -> Iterator[None]:
    """While inside, no file and no folder beneath `folder` can be made or written by this process,
    but those whose path holds `spares`."""

    def refuse(path: Any) -> None:
        beneath = folder in Path(path).parents and spares not in str(path)
        if beneath:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    kept = os.open, os.mkdir, Path.open

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            refuse(path)
        return kept[0](path, flags, *more, **named)

    def made(path: Any, *more: Any, **named: Any) -> None:
        if not Path(path).is_dir():
            refuse(path)
        kept[1](path, *more, **named)

    def appended(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if "a" in mode or "w" in mode:
            refuse(self)
        return kept[2](self, mode, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        patch.setattr(os, "mkdir", made)
        patch.setattr(Path, "open", appended)
        yield


def record(number: int, elapsed_s: float) -> EpochRecord:
    return EpochRecord(
        epoch=number, train_loss=0.5, val_loss=0.5, learning_rate=0.1, elapsed_s=elapsed_s
    )


@pytest.fixture
def kept(tmp_path: Path) -> KeptFolder:
    return another(tmp_path)


def another(tmp_path: Path) -> KeptFolder:
    """As another attempt has it."""
    return KeptFolder(folder=tmp_path / "kept", identity={"seed": 1})


@pytest.mark.parametrize("spares", ["nothing", "/checkpoint"])
def test_a_trial_on_a_full_disk_goes_on_without_a_checkpoint(
    spares: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where its folder can be made and its notes cannot, and where neither can."""
    job = program_job(tmp_path, KEEPS, folder=tmp_path / "disk")
    with full(tmp_path / "disk", spares=spares):
        result = trained(job)
    assert result is not None
    assert (result.state, result.recorded.epochs) == (TrialState.COMPLETE, 3), result.recorded
    said = [each.getMessage() for each in caplog.records if "no checkpoint" in each.getMessage()]
    assert len(said) == 1
    assert f"no checkpoint in {tmp_path}/disk/" in said[0]
    assert said[0].endswith(": the disk is full; the training goes on without")


def test_a_disk_that_fills_up_while_a_trial_goes_on_costs_no_trial(tmp_path: Path) -> None:
    text = KEEPS.replace(
        "    epoch(", "    if number == 3 and not done: time.sleep(60)\n    epoch("
    )
    epochs: list[int] = []
    job = program_job(
        tmp_path,
        text,
        folder=tmp_path / "disk",
        on_epoch=lambda each, _repeat: epochs.append(each.epoch),
        should_stop=lambda: StopReason.INTERRUPTED if len(epochs) > 1 else None,
    )
    assert trained(job) is None
    with full(tmp_path / "disk"):
        result = trained(program_job(tmp_path, text, folder=tmp_path / "disk"))
    assert result is not None
    assert (result.recorded.epochs, result.recorded.resumed_from_epoch) == (3, 2)


def test_epochs_that_are_told_again_do_not_stand_beside_what_was_told_before(
    kept: KeptFolder, tmp_path: Path
) -> None:
    """Its checkpoint was of epoch 1, and the disk is full as it goes on from there: epochs 2 and 3
    of the attempt before must count no more, whoever goes on next."""
    kept.earlier()
    assert kept.own is not None
    (kept.own / "epoch").touch()
    for number in (1, 2, 3):
        kept.add(record(number, float(number)))
    again = another(tmp_path)
    assert len(again.earlier().epochs) == 3
    with full(tmp_path):
        again.went_on_from([record(1, 1.0)])
        again.add(record(2, 20.0))
    assert another(tmp_path).earlier().epochs == ()


def test_what_was_told_before_outlives_an_attempt_whose_disk_is_full(
    kept: KeptFolder, tmp_path: Path
) -> None:
    kept.earlier()
    assert kept.own is not None
    (kept.own / "epoch").touch()
    kept.add(record(1, 1.0))
    again = another(tmp_path)
    with full(tmp_path):
        again.went_on_from(again.earlier().epochs)
        again.add(record(2, 2.0))
    assert [each.elapsed_s for each in another(tmp_path).earlier().epochs] == [1.0]


def test_once_there_is_room_again_all_that_was_told_is_noted(
    kept: KeptFolder, tmp_path: Path
) -> None:
    kept.earlier()
    assert kept.own is not None
    (kept.own / "epoch").touch()
    kept.add(record(1, 1.0))
    with full(tmp_path):
        kept.add(record(2, 2.0))
        kept.note({"contaminated": False})
    kept.add(record(3, 3.0))
    assert [each.elapsed_s for each in another(tmp_path).earlier().epochs] == [1.0, 2.0, 3.0]


def test_who_cannot_throw_a_checkpoint_away_keeps_it_from_the_program(
    kept: KeptFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.earlier()
    assert kept.own is not None
    (kept.own / "epoch").touch()
    kept.add(record(1, 1.0))
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    kept.begin_anew()
    assert kept.own is None
    assert kept.earlier().epochs == ()


def test_no_room_to_start_a_program_takes_the_trial_back(tmp_path: Path) -> None:
    """It is not this trial's failure: each would fail."""
    (tmp_path / "tmp").mkdir()
    job = program_job(tmp_path / "program", KEEPS)
    with pytest.MonkeyPatch.context() as patch, full(tmp_path / "tmp"):
        patch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        with pytest.raises(TrainerLostError, match=r"cannot be started.*No space left on device"):
            trained(job)
