"""The callback of Lightning's, in the project that the documentation shows and in the benchmark's:
it reports what tuner reads, stops, goes on, and the network is as good as in tuner's own loop."""

from __future__ import annotations

import importlib
import os
import runpy
import statistics
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.documentation import blocks
from tests.support.paths import REPOSITORY
from tests.support.told_programs import Told, tell
from tests.support.trial_jobs import job_of
from tuner.callbacks import LightningReport
from tuner.config import TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.errors import TunerError
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.trial.seeds_and_reruns import run_job

EXAMPLES = REPOSITORY / "benchmarks" / "own_loops"
CHOSEN = {"learning_rate": 3e-3, "dropout": 0.1, "hidden_size": 16, "batch_size": 64}
EPOCHS = 3


@pytest.fixture(autouse=True)
def _as_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """In a folder of its own, with what it changes for all of this process put back."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def documented(tmp_path: Path) -> Path:
    (text,) = (
        block.text
        for block in blocks("py")
        if block.document == "docs/own-loop.md" and block.text.startswith("# lightning_train.py")
    )
    path = tmp_path / "lightning_train.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_documented_project_reports_stops_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = documented(tmp_path)
    told = tell(monkeypatch, tmp_path / "first", clock="lightning")
    runpy.run_path(str(program))
    epochs, final = told.epochs(), told.final()
    assert [each.epoch for each in epochs] == [1, 2, 3]
    assert final is not None
    assert final.final.epochs == 3
    assert final.final.test_mql == pytest.approx(epochs[-1].val_loss)
    clocks = [each.elapsed_s or 0.0 for each in epochs]
    assert 0 < clocks[0] < clocks[1] < clocks[2]
    assert {each.learning_rate for each in epochs} == {0.05}

    # Its checkpoint is in the trial's folder: another attempt goes on from it, with more epochs.
    again = tell(
        monkeypatch,
        tmp_path / "first",
        clock="lightning",
        max_epochs=5,
        resume={"epoch": 3, "elapsed_s": clocks[-1]},
    )
    runpy.run_path(str(program))
    assert [each.epoch for each in again.epochs()] == [4, 5]
    assert again.epochs()[0].val_loss < epochs[0].val_loss / 2  # it is no new network

    stopped = tell(monkeypatch, tmp_path / "stopped", clock="lightning")
    stopped.stop()
    runpy.run_path(str(program))
    assert stopped.epochs() == []
    assert stopped.final() is None


def test_a_checkpoint_that_a_kill_cut_short_is_not_gone_on_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tell(monkeypatch, tmp_path / "told", clock="lightning").folder / "checkpoint"
    assert LightningReport().last_checkpoint is None
    for number, name in enumerate(("first", "second", "third")):
        torch.save({"epoch": number, "weights": torch.ones(1000)}, folder / f"{name}.ckpt")
        os.utime(folder / f"{name}.ckpt", (number, number))
    assert LightningReport().last_checkpoint == folder / "third.ckpt"
    whole = (folder / "third.ckpt").read_bytes()
    for kept in (0, 1, len(whole) // 2, len(whole) - 1):
        (folder / "third.ckpt").write_bytes(whole[:kept])
        assert LightningReport().last_checkpoint == folder / "second.ckpt"
    (folder / "second.ckpt").write_bytes(b"")
    (folder / "first.ckpt").unlink()
    assert LightningReport().last_checkpoint is None


def test_of_several_processes_the_first_one_speaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tell(monkeypatch, tmp_path, clock="lightning")
    report = LightningReport()
    module: Any = types.SimpleNamespace(device=torch.device("cpu"))
    other: Any = types.SimpleNamespace(is_global_zero=False, current_epoch=1, callback_metrics={})
    report.on_train_start(other, module)
    report.on_train_epoch_start(other, module)
    report.on_train_epoch_end(other, module)
    report.on_fit_end(other, module)
    report.final(test_mql=0.3)
    assert told.said() == []


def test_a_training_that_tuner_ended_has_no_final_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = documented(tmp_path)
    program.write_text(
        program.read_text()
        .replace("if not report.stopped:", "if report.stopped:")
        .replace('float(trainer.callback_metrics["val_loss"])', "0.5")
    )
    told = tell(monkeypatch, tmp_path / "stopped", clock="lightning")
    told.stop()
    runpy.run_path(str(program))
    assert [type(each).__name__ for each in told.said()] == ["Started"]


def by_a_program(name: str, folder: Path, patch: pytest.MonkeyPatch, seed: int) -> Told:
    clock = "lightning" if name.startswith("lightning") else "process"
    told = tell(patch, folder, clock=clock, seed=seed, hyperparameters=CHOSEN, max_epochs=EPOCHS)
    patch.syspath_prepend(str(EXAMPLES))
    importlib.import_module(name).main()
    return told


def by_tuners_loop(seed: int) -> float:
    prepared = prepare(load_task("demo"))
    file = load_study_file(str(EXAMPLES / "own-small.toml"))
    definition = StudyDefinition.of(
        file,
        task=prepared.task.definition(),
        data_hash=prepared.data_hash,
        training=TrainingSettings(max_epochs=EPOCHS),
    )
    job = job_of(
        reruns=0,
        definition=definition,
        hyperparameters=definition.hyperparameters({**CHOSEN, "weight_decay": 0.0}),
        seed=seed,
    )
    result = run_job(job, {prepared.data_hash: to_device(prepared, "cpu")})
    assert result is not None
    assert result.recorded.clock == "tuner"
    assert result.recorded.test_mql is not None
    return result.recorded.test_mql


def test_the_same_network_is_as_good_in_three_loops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = [by_tuners_loop(seed) for seed in range(3)]
    middle, spread = statistics.mean(ours), statistics.stdev(ours)
    for name in ("plain_loop", "lightning_loop"):
        found = []
        for seed in (1, 2):
            told = by_a_program(name, tmp_path / f"{name}-{seed}", monkeypatch, seed)
            final = told.final()
            assert final is not None
            assert len(told.epochs()) == EPOCHS
            found.append(final.final.test_mql or 0.0)
        assert found[0] != found[1], f"{name} ignores its seed"
        assert abs(statistics.mean(found) - middle) < 4 * spread, (name, found, ours)


def test_a_loss_that_is_not_logged_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = documented(tmp_path)
    program.write_text(program.read_text().replace("LightningReport()", "LightningReport('loss')"))
    tell(monkeypatch, tmp_path / "told", clock="lightning")
    with pytest.raises(TunerError, match="nothing is logged as 'loss'"):
        runpy.run_path(str(program))


def test_without_the_library_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "tuner.callbacks.lightning_report"
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(TunerError, match=r"pip install 'tuner\[lightning\]'"):
        importlib.import_module("tuner.callbacks").LightningReport  # noqa: B018
