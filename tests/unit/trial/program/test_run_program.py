"""A program in place of a network: what it is told, what is recorded of it, and what it may do
wrong without harm to anybody else."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from optuna.trial import TrialState

from tests.support.programs import failure_of, heard_by, program_job, trained, write_program
from tuner.config import EpochRecord, StopReason
from tuner.spec import program
from tuner.spec.program import ClockLabel
from tuner.spec.study_file import load_study_file
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.trial.program import program_process, program_reader, program_result
from tuner.trial.survival import TrainerLostError
from tuner.worker.process import ORPHAN_GRACE_S


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits a second for each of so many that are to end."""
    assert 2 * program_process.ASKED_S < ORPHAN_GRACE_S
    monkeypatch.setattr(program_process, "ASKED_S", 0.2)


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
    assert (recorded.clock, recorded.clock_version) == ("process", 1)
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


WRONG = {
    "nothing": ("", "it ended without an epoch (exit code 0, 0 epochs told)"),
    "no values": ("epoch(1, .5)", "without final values (exit code 0, 1 epochs told)"),
    "a crash": ("epoch(1, .5); raise SystemExit(3)", "without final values (exit code 3"),
    "an exception": (
        "epoch(1, .5); raise ValueError('too cold')  # raise SystemExit",
        "without final values (exit code 1, 1 epochs told); it printed last: ValueError: too cold",
    ),
    "a signal": ("os.kill(os.getpid(), 11)", "without an epoch (SIGSEGV"),
    "a crash after its values": (
        "epoch(1, .5); say(final={'test_mql': 1}); report.close(); raise SystemExit(4)",
        "ended with exit code 4 all the same",
    ),
    "rubbish": ("write('Epoch 1/3 loss nan \\x1b[31m')", "no line of JSON"),
    "a list": ("write('[1, 2]')", "expected a table"),
    "a deep nest": ("write('[' * 60000)", "no line of JSON"),
    "a long line": ("write('x' * 70000)", "a line of more than 64 KiB"),
    "a text for a loss": ("say(epoch=1, train_loss='low', val_loss=1)", "train_loss"),
    "a key too many": (
        "say(epoch=1, train_loss=1, val_loss=1, mae=2)",
        "mae is unknown; expected some of epoch, train_loss, val_loss, learning_rate",
    ),
    "a misspelt value": (
        "say(final={'test_loss': 1})",
        "final.test_loss is unknown; expected some of test_mql, val_mql, converged, epochs",
    ),
    "a key twice": (
        """write('{"epoch": 1, "train_loss": 1, "val_loss": 1, "val_loss": 2}')""",
        "which says val_loss twice",
    ),
    "half a line": (
        """epoch(1, .5); report.write('{"final": {"test_m'); report.close(); raise SystemExit""",
        "without final values (exit code 0, 1 epochs told)",
    ),
    "an epoch twice": ("epoch(1, .5); epoch(1, .5)", "told epoch 1 after epoch 1"),
    "an epoch too many": ("[epoch(n, .5) for n in range(1, 9)]", "went on after epoch 5"),
    "an epoch of nowhere": ("epoch(3, .5)", "its first epoch is 3"),
    "other values": ("epoch(1, .5); say(final={'val_mql': 1})", "its final values lack test_mql"),
    "a clock of its own": (
        "say(epoch=1, train_loss=1, val_loss=1, elapsed_s=0.1)",
        'its study file says clock = "process"',
    ),
    "no time": (
        (
            "lines = [{'started': True}, {'epoch': 1, 'train_loss': 1, 'val_loss': 1}]\n"
            "lines.append({'final': {'test_mql': 1}})\n"
            "write('\\n'.join(map(json.dumps, lines))); report.close(); raise SystemExit"
        ),
        "its clock says 0 s: say started before the first epoch, and flush after each line",
    ),
    "an error below 0": (
        (
            "time.sleep(.1); epoch(1, .5); say(final={'test_mql': -1})\n"
            "report.close(); raise SystemExit"
        ),
        "its final test_mql is -1; expected an error, which is above 0",
    ),
    "silence": ("time.sleep(9)", "it hung: it told nothing for 0.4 s"),
    "a gigabyte": (
        "w = open(1, 'wb')\nwhile True: w.write(b'x' * (1 << 20))",
        "printed more than 32 MiB",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_program_does_wrong_is_its_trials_failure(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_reader, "PRINTED_BYTES", 32 << 20)
    text, said = WRONG[what]
    ends = "raise SystemExit" in text
    hangs = "" if ends or "exit" in said or "lack" in said or "SIG" in said else "\ntime.sleep(9)"
    text = f"def write(line): print(line, file=report, flush=True)\n{text}{hangs}"
    process = "silence_s = 0.4" if what == "silence" else ""
    began = time.monotonic()
    assert said in failure_of(program_job(tmp_path, text, process=process))
    assert time.monotonic() - began < 5


def test_a_program_that_cannot_be_started_says_so_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = program_job(tmp_path)
    assert job.definition.program is not None
    program = job.definition.program.model_copy(update={"command": ("./no-such-program",)})
    job = dataclasses.replace(
        job, definition=dataclasses.replace(job.definition, program=program, model_source=None)
    )
    assert "exit code 127" in failure_of(job)
    assert "./no-such-program cannot be started: No such file or directory" in caplog.text


def test_a_loss_that_is_none_has_diverged(tmp_path: Path) -> None:
    result = trained(program_job(tmp_path, "epoch(1, float('nan')); time.sleep(9)"))
    assert result is not None
    assert (result.state, result.recorded.stopped_by) == (TrialState.FAIL, "diverged")
    final = trained(program_job(tmp_path, "epoch(1, .5); say(final={'test_mql': float('inf')})"))
    assert final is not None
    assert (final.state, final.recorded.stopped_by) == (TrialState.FAIL, "diverged")


CHILDREN = """
import subprocess
words = [sys.executable, "-c", "import time; time.sleep(60)"]
kept = [subprocess.Popen(words), subprocess.Popen(words, start_new_session=True)]
if os.fork() == 0:                       # a daemon: it forks twice, and leads a session of its own
    os.setsid()
    if os.fork() == 0:
        open("daemon", "w").write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
while not os.path.exists("daemon") or not open("daemon").read():
    time.sleep(0.01)
open("pids", "w").write(" ".join(str(each.pid) for each in kept) + " " + open("daemon").read())
epoch(1, .5)
"""


@pytest.mark.parametrize("end", ["say(final={'test_mql': 1})", "time.sleep(60)"])
def test_nothing_that_a_program_started_outlives_it(end: str, tmp_path: Path) -> None:
    def should_stop() -> StopReason | None:
        return StopReason.INTERRUPTED if "sleep" in end and (tmp_path / "pids").exists() else None

    result = trained(program_job(tmp_path, CHILDREN + end, should_stop=should_stop))
    assert (result is None) == ("sleep" in end)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


STUBBORN = """
import signal
signal.signal(signal.SIGTERM, lambda *_: open("termed", "w").close())
epoch(1, .5)
while True:
    if os.path.exists(os.environ["TUNER_STOP"]): open("asked", "w").close()
    time.sleep(0.02)
"""


def test_a_program_is_asked_then_told_then_made_to_stop(tmp_path: Path) -> None:
    epochs: list[EpochRecord] = []
    job = program_job(
        tmp_path,
        STUBBORN,
        should_stop=lambda: StopReason.INTERRUPTED if epochs else None,
        **heard_by(epochs),
    )
    assert trained(job) is None
    assert (tmp_path / "asked").exists()
    assert (tmp_path / "termed").exists()


@pytest.mark.parametrize(("said", "ended"), [("", False), (", 'converged': True", True)])
def test_an_interrupted_program_that_tells_its_values_has_not_ended_unless_it_converged(
    said: str, ended: bool, tmp_path: Path
) -> None:
    """Before its last epoch: what it has by then are the values of half a training."""
    text = f"""
    epoch(1, .5)
    while not os.path.exists(os.environ["TUNER_STOP"]): time.sleep(.01)
    say(final={{'test_mql': .5{said}}})
    """
    epochs: list[EpochRecord] = []
    result = trained(
        program_job(
            tmp_path,
            text,
            should_stop=lambda: StopReason.INTERRUPTED if epochs else None,
            **heard_by(epochs),
        )
    )
    assert (result is not None) == ended
    assert result is None or result.recorded.converged


def test_a_pruned_program_ends_with_the_epoch_that_said_so(tmp_path: Path) -> None:
    class Judge:
        verdicts = ()

        def judge(self, record: EpochRecord, _repeat: int) -> object:
            return "dominated" if record.epoch == 2 else None

    text = """
    for number in (1, 2, 3, 4):
        epoch(number, .5)
        until = time.monotonic() + (number == 2)
        while time.monotonic() < until:
            if os.path.exists(os.environ["TUNER_STOP"]): raise SystemExit
            time.sleep(.01)
    """
    result = trained(program_job(tmp_path, text, watched=Judge()))
    assert result is not None
    assert (result.state, result.recorded.epochs) == (TrialState.PRUNED, 2)


RESUMABLE = """
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
open("starts", "a").write(f"{done} {told['resume']}\\n")
say(started=True)
for number in range(done + 1, 6):
    time.sleep(0.05)
    epoch(number, 1 / number)
    open(mine, "w").write(str(number))
say(final={"test_mql": .5})
"""


def interrupted_after(last: int, tmp_path: Path, text: str) -> list[EpochRecord]:
    """The epochs of an attempt that is interrupted after epoch `last`."""
    told: list[EpochRecord] = []
    job = program_job(
        tmp_path,
        text,
        folder=tmp_path / "checkpoints",
        should_stop=lambda: StopReason.INTERRUPTED if len(told) >= last else None,
        **heard_by(told),
    )
    assert trained(job) is None
    return told


def continued(tmp_path: Path, text: str, **changes: Any) -> TrialResult:
    result = trained(program_job(tmp_path, text, folder=tmp_path / "checkpoints", **changes))
    assert result is not None
    return result


def test_a_program_with_a_checkpoint_goes_on_with_its_clock(tmp_path: Path) -> None:
    wait = "if number == 3 and not done: time.sleep(60)\n    time.sleep(0.3 if done < 2 else 0.05)"
    text = RESUMABLE.replace("time.sleep(0.05)", wait)
    curves: list[int] = []
    first = interrupted_after(2, tmp_path, text)
    result = continued(tmp_path, text, on_curve=lambda records, _: curves.append(len(records)))
    recorded = result.recorded
    assert (recorded.epochs, recorded.resumed_from_epoch) == (5, 2)
    assert curves == [2]
    assert recorded.wall_clock_s is not None
    assert first[1].elapsed_s + 0.14 < recorded.wall_clock_s < first[1].elapsed_s + 0.6
    starts = (tmp_path / "starts").read_text().splitlines()
    assert starts[0] == "0 None"
    assert starts[1].startswith("2 {'epoch': 2, 'elapsed_s': ")
    assert recorded.timed_earlier is not None
    assert len(recorded.timed_earlier) == 1


@pytest.mark.parametrize(("says", "starts"), [(", 'epochs': 5", 2), ("", 3)])
def test_who_was_interrupted_after_its_last_epoch_says_so_or_begins_anew(
    says: str, starts: int, tmp_path: Path
) -> None:
    hang = "if not done: time.sleep(60)\nsay(final={'test_mql': .5" + says + "})"
    text = RESUMABLE.replace("sleep(0.05)", "sleep(0.01)").partition("say(final")[0]
    hang = hang.replace("not done", "not os.path.exists('hung') and not open('hung', 'w').close()")
    first = interrupted_after(5, tmp_path, text + hang)
    recorded = continued(tmp_path, text + hang).recorded
    assert recorded.epochs == 5
    assert recorded.resumed_from_epoch == (5 if says else None)
    assert (recorded.wall_clock_s == first[-1].elapsed_s) == bool(says)
    assert len((tmp_path / "starts").read_text().splitlines()) == starts


def test_a_program_without_a_checkpoint_begins_anew_with_its_clock(tmp_path: Path) -> None:
    text = """
    for number in (1, 2, 3):
        if number == 3 and not os.path.exists("hung"): open("hung", "w"); time.sleep(60)
        epoch(number, .5)
    say(final={"test_mql": 1})
    """
    interrupted_after(2, tmp_path, text)
    recorded = continued(tmp_path, text).recorded
    assert (recorded.epochs, recorded.resumed_from_epoch) == (3, None)


def test_a_checkpoint_ahead_of_what_was_told_is_not_gone_on_with(tmp_path: Path) -> None:
    """A kill between the checkpoint and the line of its epoch: the clock of that epoch is lost."""
    text = RESUMABLE.replace(
        "    epoch(number, 1 / number)\n",
        "    open(mine, 'w').write(str(number))\n"
        "    if number == 3 and not os.path.exists('hung'): open('hung', 'w'); time.sleep(60)\n"
        "    epoch(number, 1 / number)\n",
    )
    hung: Callable[[], bool] = (tmp_path / "hung").exists
    job = program_job(
        tmp_path,
        text,
        folder=tmp_path / "checkpoints",
        should_stop=lambda: StopReason.INTERRUPTED if hung() else None,
    )
    assert trained(job) is None
    result = continued(tmp_path, text)
    assert (result.state, result.recorded.resumed_from_epoch) == (TrialState.COMPLETE, None)
    assert [line[0] for line in (tmp_path / "starts").read_text().splitlines()] == ["0", "3", "0"]


def test_what_differs_is_not_gone_on_with(tmp_path: Path) -> None:
    text = RESUMABLE.replace("(0.05)", "(0.05 if number < 3 else 0.5)")
    interrupted_after(2, tmp_path, text)
    result = continued(tmp_path, text, study_key="another", max_epochs=5)
    assert result.recorded.resumed_from_epoch is None


def test_a_program_that_was_changed_trains_no_trial(tmp_path: Path) -> None:
    job = program_job(tmp_path)
    with (tmp_path / "train.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(TrainerLostError, match="is not what it was when the study was made"):
        trained(job)


def of_clock_version(job: TrialJob, version: int) -> TrialJob:
    """The same, of a study that was made with another version of the clock."""
    assert job.definition.program is not None
    program = job.definition.program.model_copy(update={"clock_version": version})
    return dataclasses.replace(job, definition=dataclasses.replace(job.definition, program=program))


def test_a_study_by_another_version_of_the_clock_is_not_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(
        TrainerLostError, match="by version 7 of the clock process, and this tuner has version 1"
    ):
        trained(of_clock_version(program_job(tmp_path), 7))


def test_the_version_of_the_clock_is_that_of_the_code_that_timed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CLOCK_VERSIONS", {ClockLabel.PROCESS: 7})
    monkeypatch.setattr(program_result, "CLOCK_VERSIONS", {ClockLabel.PROCESS: 7})
    result = trained(of_clock_version(program_job(tmp_path), 7))
    assert result is not None
    assert result.recorded.clock_version == 7


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


def test_a_last_line_may_lack_its_end(tmp_path: Path) -> None:
    text = """
    epoch(1, .5)
    report.write('{"final": {"test_mql": 0.25}}')
    """
    result = trained(program_job(tmp_path, text))
    assert result is not None
    assert (result.state, result.recorded.test_mql) == (TrialState.COMPLETE, 0.25)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("epoch(1, .5); epoch(2, math.nan)", "in epoch 2 it told train_loss nan and val_loss nan"),
        ("epoch(1, .5); say(final={'test_mql': math.inf})", "its final values are no numbers"),
    ],
)
def test_what_has_diverged_is_said(told: str, said: str, tmp_path: Path) -> None:
    result = trained(program_job(tmp_path, f"import math\n{told}"))
    assert result is not None
    assert (result.state, result.recorded.stopped_by) == (TrialState.FAIL, "diverged")
    assert said in (result.recorded.failure or "")


def test_a_program_that_was_killed_goes_on_once(tmp_path: Path) -> None:
    text = RESUMABLE.replace(
        "    epoch(number, 1 / number)\n",
        "    epoch(number, 1 / number)\n    if number == KILLS: os.kill(os.getpid(), 9)\n",
    )
    once = text.replace("KILLS", "3 and done == 0")
    result = trained(program_job(tmp_path / "a", once, folder=tmp_path / "checkpoints"))
    assert result is not None
    assert (result.state, result.recorded.resumed_from_epoch) == (TrialState.COMPLETE, 2)
    assert "it was killed (SIGKILL)" in failure_of(
        program_job(tmp_path / "b", text.replace("KILLS", "3"), folder=tmp_path / "checkpoints")
    )


def test_the_values_of_a_program_that_was_killed_after_them_count(tmp_path: Path) -> None:
    for whom in ("os.getpid()", "os.getppid()"):
        text = f"{RESUMABLE}\nreport.close(); os.kill({whom}, 9); time.sleep(60)\n"
        result = trained(program_job(tmp_path / f"of {whom}", text, folder=tmp_path / whom))
        assert result is not None
        assert (result.state, result.recorded.epochs) == (TrialState.COMPLETE, 5)
        assert len((tmp_path / f"of {whom}" / "starts").read_text().split("\n")) == 2, "one attempt"


def test_its_guard_takes_everything_along(tmp_path: Path) -> None:
    """kill -9 of the process between: the program ends with it, and the trial fails in a line."""
    text = """
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open("pids", "w").write(f"{os.getpid()} {child.pid}")
    epoch(1, .5)
    os.kill(os.getppid(), 9)
    time.sleep(60)
    """
    assert "SIGKILL" in failure_of(program_job(tmp_path, text))
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    deadline = time.monotonic() + 2
    while any(map(_lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_lives, pids))


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def test_a_program_has_the_usual_signals_although_its_worker_ignores_them(tmp_path: Path) -> None:
    text = """
    ignored = int(open("/proc/self/status").read().partition("SigIgn:")[2].split()[0], 16)
    mine = (1, 2, 15)                    # Python itself ignores SIGPIPE
    epoch(1, .5)
    is_ignored = [ignored >> (number - 1) & 1 for number in mine]
    say(final={"test_mql": 1 + sum(is_ignored)})
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as in a GPU's trainer
    try:
        result = trained(program_job(tmp_path, text))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result is not None
    assert result.recorded.test_mql == 1


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    study = write_program(tmp_path)
    text = study.read_text().replace(
        '"train.py"]', '"train.py", "; touch pwned", "$(touch pwned)"]'
    )
    study.write_text(text)
    program = load_study_file(str(study)).program
    assert program is not None
    job = program_job(tmp_path)
    job = dataclasses.replace(job, definition=dataclasses.replace(job.definition, program=program))
    result = trained(job)
    assert result is not None
    assert result.state is TrialState.COMPLETE
    assert not (tmp_path / "pwned").exists()


def test_a_run_leaves_no_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert trained(program_job(tmp_path / "program")) is not None
    assert list((tmp_path / "tmp").glob("tuner-program*")) == []
