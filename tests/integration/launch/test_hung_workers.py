"""The supervisor with workers that only pretend: hung ones, lost devices, and its own sudden
end."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli_processes import CORES, Bench, kill, wait_for, workers_of
from tests.support.paths import SCRIPTS
from tests.support.small_study import definition
from tuner.devices import CpuCores
from tuner.files.child import ChildProcess
from tuner.launch import Outcome, Supervisor, child
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume
from tuner.worker.paths import WorkerPaths, deliver, working_folder
from tuner.worker.process import ORPHAN_GRACE_S, ORPHAN_LOOK_S, ORPHAN_WILL_S

STUB = (sys.executable, str(SCRIPTS / "stub_worker.py"))
START = """
import subprocess, sys, time
subprocess.Popen([*sys.argv[1:], "--supervised-by", str(__import__("os").getpid())])
time.sleep(600)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a worker is started again."""
    monkeypatch.setattr("tuner.launch.supervisor.FIRST_PAUSE_S", 0.01)


@dataclass
class Hurried:
    """The watchdog's time: it runs ahead for as long as the test waits for a worker that hangs to
    be killed."""

    ahead: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def supervised(
    bench: Bench,
    *,
    trials: int,
    look: Callable[[], None] = lambda: None,
    hang_limit_s: float | None = None,
) -> Outcome:
    """A study of so many trials, worked off by one worker that pretends, with the outbox delivered
    as a launch does."""
    database = open_database(parse_url(bench.url))
    study = create_or_resume(database, "tiny-small", definition(), trials=trials)
    study.set_policy(SearchPolicy(sampler="random"))
    outcome = Supervisor(
        studies=[study],
        queues=[study.ledger],
        devices=[CpuCores((CORES[0],))],
        worker_options=[],
        environment=bench.environment,
        log_folder=bench.folder / "logs",
        worker_command=STUB,
        hang_limit_s=hang_limit_s,
        deliver=functools.partial(deliver, [study], WorkerPaths(working_folder(database.address))),
    ).run(look)
    database.close()
    return outcome


def test_a_hung_worker_is_killed_and_a_lost_device_context_gets_a_fresh_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    clock = Hurried()
    killed: list[int] = []
    send = ChildProcess.send_signal

    def send_and_note(process: ChildProcess, number: signal.Signals) -> None:
        if process.runs and number is signal.SIGKILL:
            killed.append(process.popen.pid)
        send(process, number)

    monkeypatch.setattr(child, "time", clock)
    monkeypatch.setattr(ChildProcess, "send_signal", send_and_note)

    def hurry() -> None:
        if (bench.folder / "attempt-0").exists() and not killed:
            clock.ahead = min(clock.ahead + 30.0, 600.0)

    outcome = supervised(bench, trials=3, look=hurry, hang_limit_s=120.0)
    assert len(killed) == 1
    assert outcome is Outcome.FILLED
    assert bench.claims() == [("lost", 0), ("finished", 0), ("finished", 1), ("finished", 2)]
    assert bench.trials() == [(0, "COMPLETE"), (1, "FAIL"), (2, "COMPLETE")]
    with bench.opened() as opened:
        trials = opened.optuna.trials
    assert trials[0].user_attrs["attempts"] == 2
    assert (
        trials[1]
        .user_attrs["failure"]
        .endswith("RuntimeError: CUDA error: an illegal memory access was encountered")
    )
    workers = (bench.folder / "logs").glob("worker-*.log")
    assert "this process can use its device no more" in "".join(
        path.read_text() for path in workers
    )


def test_a_worker_that_a_trial_ends_with_code_0_is_not_done_and_what_a_killed_one_computed_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(bench.folder)
    for name in ("leaves", "dies", "attempt-0", "attempt-1"):  # with these, no trial hangs
        (bench.folder / name).touch()
    assert supervised(bench, trials=2) is Outcome.FILLED
    assert "ended with exit code 0 in the middle of a trial" in caplog.text
    assert not (bench.folder / "dies").exists()
    assert bench.claims() == [("lost", 0), ("finished", 0), ("finished", 1)]
    assert bench.trials() == [(0, "COMPLETE"), (1, "COMPLETE")]


def test_a_worker_in_the_middle_of_something_long_ends_with_its_supervisor_all_the_same(
    bench: Bench,
) -> None:
    database = open_database(parse_url(bench.url))
    create_or_resume(database, "tiny-small", definition(), trials=1)
    database.close()
    command = [
        sys.executable,
        "-c",
        START,
        *STUB,
        "--study",
        "tiny-small",
        "--cpu",
        "--name",
        "ann",
    ]
    supervisor = subprocess.Popen(command, cwd=bench.folder, env=bench.environment)
    try:
        wait_for((bench.folder / "attempt-0").exists, "a trial that hangs")
        supervisor.kill()
        supervisor.wait()
        wait_for(lambda: not workers_of(supervisor.pid), "the worker's end")
    finally:
        kill(workers_of(supervisor.pid))
    assert bench.claims() == [("returned", 0)]


def test_a_worker_is_to_end_within_five_seconds_of_its_supervisor() -> None:
    assert ORPHAN_LOOK_S + ORPHAN_GRACE_S + ORPHAN_WILL_S < 5
