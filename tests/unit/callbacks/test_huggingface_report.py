"""The callback of Hugging Face's Trainer, called as the Trainer calls it: tuner does not install
that library, so its one class is stood in for."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.told_programs import Told, tell
from tuner.errors import TunerError

MODULE = "tuner.callbacks.huggingface_report"
CONTROL = types.SimpleNamespace(should_training_stop=False)
ARGS = types.SimpleNamespace(device=types.SimpleNamespace(type="cpu"))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    stub = types.ModuleType("transformers")
    stub.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", stub)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


def state(epoch: float) -> Any:
    return types.SimpleNamespace(epoch=epoch, is_world_process_zero=True)


def one_epoch(report: Any, number: int, *, loss: bool = True) -> None:
    """The order of the Trainer's calls with eval_strategy and logging_strategy "epoch"."""
    report.on_epoch_begin(ARGS, state(number - 1), CONTROL)
    report.on_step_end(ARGS, state(number - 0.5), CONTROL)
    if loss:
        report.on_log(ARGS, state(number), CONTROL, logs={"loss": 0.5, "learning_rate": 0.1})
    report.on_evaluate(ARGS, state(number), CONTROL, metrics={"eval_loss": 0.25})
    report.on_log(ARGS, state(number), CONTROL, logs={"eval_loss": 0.25})


def test_each_evaluation_of_a_training_is_told_once(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: Told = tell(monkeypatch, tmp_path, clock="huggingface")
    report = library.HuggingFaceReport()
    report.on_train_begin(ARGS, state(0), CONTROL)
    for number in (1, 2):
        one_epoch(report, number)
    report.on_train_end(ARGS, state(2.0), CONTROL)
    report.on_evaluate(ARGS, state(2.0), CONTROL, metrics={"eval_loss": 0.3})  # the program's own
    report.final(test_mql=0.3)
    epochs = told.epochs()
    assert [(each.epoch, each.train_loss, each.val_loss) for each in epochs] == [
        (1, 0.5, 0.25),
        (2, 0.5, 0.25),
    ]
    assert epochs[0].elapsed_s is not None
    assert epochs[1].elapsed_s is not None
    assert 0 < epochs[0].elapsed_s < epochs[1].elapsed_s
    final = told.final()
    assert final is not None
    assert (final.final.test_mql, final.final.epochs) == (0.3, 2)


def test_it_ends_the_training_when_tuner_says_so(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tell(monkeypatch, tmp_path, clock="huggingface")
    report = library.HuggingFaceReport()
    control = types.SimpleNamespace(should_training_stop=False)
    report.on_train_begin(ARGS, state(0), control)
    report.on_epoch_begin(ARGS, state(0), control)
    told.stop()
    report.on_step_end(ARGS, state(0.5), control)
    assert (control.should_training_stop, report.stopped) == (True, True)
    report.on_evaluate(ARGS, state(0.5), control, metrics={"eval_loss": 0.25})
    report.on_train_end(ARGS, state(0.5), control)
    report.final(test_mql=0.3)
    assert told.epochs() == []
    assert told.final() is None


def test_of_several_processes_the_first_one_speaks(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tell(monkeypatch, tmp_path, clock="huggingface")
    report = library.HuggingFaceReport()
    other = types.SimpleNamespace(epoch=1.0, is_world_process_zero=False)
    report.on_train_begin(ARGS, other, CONTROL)
    report.on_epoch_begin(ARGS, other, CONTROL)
    report.on_evaluate(ARGS, other, CONTROL, metrics={"eval_loss": 0.25})
    report.on_train_end(ARGS, other, CONTROL)
    report.final(test_mql=0.3)
    assert told.said() == []


def test_a_trainer_that_does_not_log_each_epoch_is_told_how(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tell(monkeypatch, tmp_path, clock="huggingface")
    report = library.HuggingFaceReport()
    report.on_train_begin(ARGS, state(0), CONTROL)
    with pytest.raises(TunerError, match='logging_strategy="epoch"'):
        one_epoch(report, 1, loss=False)


def test_without_the_library_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(TunerError, match=r"pip install 'tuner\[huggingface\]'"):
        importlib.import_module("tuner.callbacks").HuggingFaceReport  # noqa: B018


def test_the_newest_whole_checkpoint_is_taken_up(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tell(monkeypatch, tmp_path, clock="huggingface")
    report = library.HuggingFaceReport()
    assert report.last_checkpoint is None
    folder = report.trial.checkpoint_folder
    for number, state_of_it in enumerate(('{"epoch": 1}', '{"epoch": 2}', '{"epo', None), 1):
        made = folder / f"checkpoint-{number}"
        made.mkdir(parents=True)
        if state_of_it is not None:
            (made / "trainer_state.json").write_text(state_of_it)
        os.utime(made, (number, number))
    assert report.last_checkpoint == str(folder / "checkpoint-2")
