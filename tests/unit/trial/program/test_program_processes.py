"""The processes of a program: asked to stop, made to, and none of them left behind."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path

import psutil
import pytest
from optuna.trial import TrialState

from tests.support.programs import failure_of, heard_by, program_job, trained, write_program
from tuner.config import EpochRecord, StopReason
from tuner.spec.study_file import load_study_file

pytestmark = pytest.mark.usefixtures("impatient")

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
