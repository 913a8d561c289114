"""A loop of one's own that reports to tuner, or to nobody."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.support.told_programs import tell
from tuner.callbacks import Report, trial_to_run
from tuner.callbacks.program_report import NotUnderTunerError, PausedClock, ReportsItself
from tuner.trial.program.program_process import Started


def test_a_program_by_itself_has_no_trial_and_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUNER_TRIAL", "TUNER_REPORT", "TUNER_STOP"):
        monkeypatch.delenv(name, raising=False)
    assert trial_to_run() is None
    report = Report()
    report.started()
    report.epoch(1, train_loss=1.0, val_loss=1.0)
    report.final(test_mql=1.0)
    assert not report.should_stop


def test_what_a_report_tells_is_what_tuner_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tell(monkeypatch, tmp_path, resume={"epoch": 2, "elapsed_s": 1.5})
    trial = trial_to_run()
    assert trial is not None
    assert (trial.seed, trial.hyperparameters, trial.epochs_told) == (7, {"rate": 0.05}, 2)
    report = Report()
    report.started()
    report.epoch(3, train_loss=2, val_loss=float("nan"), learning_rate=0.5)
    report.final(test_mql=0.5, converged=True, epochs=3)
    started, epoch, final = told.said()
    assert isinstance(started, Started)
    assert epoch == told.epochs()[0]
    assert (told.epochs()[0].diverged, told.epochs()[0].learning_rate) == (True, 0.5)
    assert final == told.final()
    assert not report.should_stop
    told.stop()
    assert report.should_stop


def in_process(rank: int | None, patch: pytest.MonkeyPatch) -> None:
    """This process as one of a distributed training by torch; None: it has ended, or none is."""
    stub = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: rank is not None, get_rank=lambda: rank
    )
    patch.setitem(sys.modules, "torch.distributed", stub)


@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_distributed_training_the_first_process_speaks(
    rank: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tell(monkeypatch, tmp_path)
    report = Report()
    in_process(rank, monkeypatch)
    report.started()
    report.epoch(1, train_loss=1.0, val_loss=1.0)
    in_process(None, monkeypatch)  # destroy_process_group
    report.final(test_mql=1.0)
    assert len(told.said()) == (3 if rank == 0 else 0)


def test_a_loop_that_tuner_ended_has_no_final_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tell(monkeypatch, tmp_path)
    report = Report()
    report.started()
    told.stop()
    assert report.should_stop
    report.final(test_mql=1.0)
    assert told.final() is None
    # One that had come to its end before it looked has them.
    another = Report()
    another.final(test_mql=1.0)
    assert told.final() is not None


def test_a_trial_that_cannot_be_read_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tell(monkeypatch, tmp_path)
    (tmp_path / "trial.json").write_text("{}")
    with pytest.raises(NotUnderTunerError, match="holds no trial of tuner's"):
        trial_to_run()


def test_a_callback_of_another_clock_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tell(monkeypatch, tmp_path)
    with pytest.raises(NotUnderTunerError, match='say clock = "lightning" under'):
        ReportsItself("lightning")


def test_a_paused_clock_counts_what_lies_between(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((1.0, 3.0, 10.0, 11.5))
    waits: list[None] = []
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    clock = PausedClock(lambda: waits.append(None))
    clock.go_on()
    clock.go_on()  # it runs already
    assert clock.stop() == 2.0
    clock.go_on()
    assert clock.stop() == 3.5
    assert clock.stop() == 3.5
    assert len(waits) == 4


def test_to_import_them_brings_nothing_heavy() -> None:
    heavy = "{'torch', 'pytorch_lightning', 'pandas', 'pydantic'}"
    code = f"import sys, tuner.callbacks; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
