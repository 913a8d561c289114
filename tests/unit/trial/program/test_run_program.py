"""A program in place of a network: what it is told, and what is recorded of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.programs import failure_of, heard_by, program_job, trained
from tuner.config import EpochRecord
from tuner.devices import exclusive
from tuner.trial.job import TrainerLostError

pytestmark = pytest.mark.usefixtures("impatient")


def test_a_program_is_told_its_trial_and_its_values_are_recorded(tmp_path: Path) -> None:
    epochs: list[EpochRecord] = []
    text = """
    json.dump(told, open("told.json", "w"))
    assert "TUNER_STORAGE" not in os.environ
    time.sleep(0.2)                      # set-up
    say(started=True)
    for number in (1, 2, 3):
        time.sleep(0.06)                 # three are over 0.15, also where the line before was late
        epoch(number, [0.5, 0.3, 0.4][number - 1])
    time.sleep(0.1)                      # evaluation
    say(final={"test_mql": 0.25, "val_mql": 0.35, "n_parameters": 7, "peak_memory_bytes": 9})
    """
    result = trained(program_job(tmp_path, text, **heard_by(epochs)))
    assert result is not None
    assert result.state is TrialState.COMPLETE
    recorded = result.recorded
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["hyperparameters"] == {"rate": 0.1}
    assert told["seed"] == recorded.seed
    assert (told["trial"], told["max_epochs"], told["resume"]) == (4, 5, None)
    assert recorded.clock == "process"
    assert (recorded.converged, recorded.epochs, recorded.best_epoch) == (True, 3, 2)
    assert (recorded.val_loss, recorded.test_mql, recorded.val_mql) == (0.3, 0.25, 0.35)
    assert (recorded.n_parameters, recorded.peak_memory_bytes) == (7, 9)
    assert recorded.wall_clock_s is not None
    assert 0.15 < recorded.wall_clock_s < 0.35  # neither the set-up nor the evaluation
    assert result.values == (recorded.wall_clock_s, 0.25)
    assert recorded.setup_s is not None
    assert recorded.setup_s > 0.2
    assert recorded.evaluation_s is not None
    assert recorded.evaluation_s > 0.09
    assert [each.epoch for each in epochs] == [1, 2, 3]
    assert epochs[-1].elapsed_s == recorded.wall_clock_s


def test_who_never_says_that_it_started_has_its_whole_life_on_the_clock(tmp_path: Path) -> None:
    result = trained(
        program_job(tmp_path, "time.sleep(.3)\nepoch(1, .5)\nsay(final={'test_mql': 1})")
    )
    assert result is not None
    assert result.values is not None
    assert result.values[0] > 0.3


def test_who_goes_to_the_last_epoch_has_not_converged_unless_it_says_so(tmp_path: Path) -> None:
    text = "epoch(1, .5); epoch(2, .4); say(final={'test_mql': 1%s})"
    cut = trained(program_job(tmp_path / "a", text % "", max_epochs=2))
    said = trained(program_job(tmp_path / "b", text % ", 'converged': True", max_epochs=2))
    assert cut is not None
    assert said is not None
    assert (cut.recorded.stopped_by, cut.recorded.converged) == ("epoch_limit", False)
    assert (said.recorded.stopped_by, said.recorded.converged) == ("converged", True)


def test_a_program_that_was_changed_trains_no_trial(tmp_path: Path) -> None:
    job = program_job(tmp_path)
    with (tmp_path / "train.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(TrainerLostError, match="is not what it was when the study was made"):
        trained(job)


def test_a_callbacks_clock_counts_and_cannot_run_ahead(tmp_path: Path) -> None:
    text = """
    say(started=True)
    time.sleep(.2)
    say(epoch=1, train_loss=1, val_loss=1, elapsed_s=%s)
    say(final={"test_mql": 1})
    """
    process = 'clock = "lightning"'
    result = trained(program_job(tmp_path, text % "0.125", process=process))
    assert result is not None
    assert result.recorded.clock == "lightning"
    assert result.values == (0.125, 1.0)
    assert "that cannot be" in failure_of(program_job(tmp_path, text % "9.0", process=process))
    without = text.replace(", elapsed_s=%s", "")
    assert "no elapsed_s" in failure_of(program_job(tmp_path, without, process=process))


def test_a_programs_device_is_its_own_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))
    free: list[bool] = []

    def on_epoch(_record: EpochRecord, _repeat: int) -> None:
        with exclusive(job.device.lock_names, give_up=lambda: True) as mine:
            free.append(mine)

    text = "epoch(1, .5); time.sleep(.1); say(final={'test_mql': 1})"
    job = program_job(tmp_path, text, on_epoch=on_epoch)
    assert trained(job) is not None
    assert free == [False]
    with exclusive(job.device.lock_names, give_up=lambda: True) as mine:
        assert mine


def test_a_busy_program_is_not_taken_for_a_stranger(tmp_path: Path) -> None:
    """Its cores' time is ours, also that of its children."""
    text = """
    say(started=True)
    if os.fork() == 0:
        until = time.process_time() + 0.5
        while time.process_time() < until: pass
        os._exit(0)
    until = time.process_time() + 0.5
    while time.process_time() < until: pass
    os.wait()
    epoch(1, .5)
    say(final={"test_mql": 1})
    """
    from tuner.trial.program.run_program import _Run

    job = program_job(tmp_path, text)
    before = _Run._own_cpu_s
    seen: list[float] = []

    def noted(self: _Run) -> float:
        seen.append(before(self))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Run, "_own_cpu_s", noted)
        assert trained(job) is not None
    assert seen[-1] - seen[0] > 0.95
