"""A study whose trials are a program: workers killed and told to stop, programs killed. Nothing is
lost, nothing counts twice, and nothing is left running."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.support.cli_processes import Bench, interrupt, kill, wait_for, workers_of
from tests.support.in_process_worker import DEVICE
from tests.support.programs import program_definition, write_program
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study
from tuner.trial.seeds_and_reruns import run_job
from tuner.worker.loop import Worker
from tuner.worker.paths import WorkerPaths

STEADY = """
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
open("pids", "a").write(f"{os.getpid()}\\n")
say(started=True)
for number in range(done + 1, 5):
    time.sleep(0.1)
    epoch(number, 1 / number)
    open(mine + ".half", "w").write(str(number))
    os.replace(mine + ".half", mine)
    while os.path.exists("slow") and not os.path.exists(os.environ["TUNER_STOP"]):
        time.sleep(0.02)
    if os.path.exists("slow"):
        raise SystemExit
say(final={"test_mql": 0.5 + told["seed"] % 7, "epochs": 4})
"""
"""Four epochs; with a file `slow` beside it, it waits after the first until it is told to stop."""


def pids_of(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def living(folder: Path) -> list[int]:
    return [pid for pid in pids_of(folder) if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenStudy]:
    study = write_program(tmp_path / "program", STEADY)
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    opened = create_or_resume(database, "program", program_definition(study), trials=3)
    opened.set_policy(SearchPolicy(sampler="random", reruns=0))
    yield opened
    database.close()


def finished_trials(opened: OpenStudy) -> list[FrozenTrial]:
    return opened.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def test_a_worker_trains_a_study_of_a_program_although_it_is_killed(
    opened: OpenStudy, tmp_path: Path
) -> None:
    """kill -9 of the second trial's program, in the middle of it: it goes on once."""
    folder = tmp_path / "program"

    def killer() -> None:
        wait_for(lambda: len(pids_of(folder)) > 1, "a second program")
        time.sleep(0.25)
        os.kill(pids_of(folder)[1], signal.SIGKILL)

    thread = threading.Thread(target=killer)
    thread.start()
    Worker([opened], DEVICE, functools.partial(run_job, data={}), paths=WorkerPaths(tmp_path)).run()
    thread.join()
    trials = finished_trials(opened)
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert [len(opened.epochs.of_trial(trial.number)) for trial in trials] == [4, 4, 4]
    assert trials[1].user_attrs["resumed_from_epoch"] in (1, 2, 3)
    assert {trial.user_attrs["clock"] for trial in trials} == {"process"}
    assert {trial.user_attrs["attempts"] for trial in trials} == {1}
    assert living(folder) == []
    assert not list(tmp_path.glob("checkpoints/*"))


def test_a_killed_worker_takes_its_program_along_and_the_next_one_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    folder = tmp_path / "program"
    write_program(folder, STEADY)
    (folder / "slow").touch()
    words = "launch --variant program/study.toml --task demo --cpu --workers 1 --trials 2"
    words += " --sampler random --reruns 0"
    process = bench.start(*words.split())
    try:
        wait_for(lambda: pids_of(folder), "a program")
        time.sleep(0.4)  # it has told its first epoch
        (worker,) = workers_of(process.pid)
        worker.kill()
        wait_for(lambda: not _lives(pids_of(folder)[0]), "its program's end", patience_s=5)
        wait_for(lambda: len(pids_of(folder)) > 1, "the next program")
        time.sleep(0.4)
        ended = interrupt(process, signal.SIGTERM)
        assert ended.code == 143, ended.err
        assert living(folder) == []
    finally:
        kill([*workers_of(process.pid), process])
    (folder / "slow").unlink()
    done = bench.run(*words.split())
    assert done.code == 0, done.err
    states = [state for state, _ in bench.claims()]
    assert sorted(states) == ["finished", "finished", "lost", "returned"]
    database = open_database(parse_url(bench.url), create=False)
    try:
        trials = finished_trials(open_study(database, "demo-program"))
        assert [trial.number for trial in trials] == [0, 1]
        assert trials[0].user_attrs["resumed_from_epoch"] == 2
        assert trials[0].user_attrs["epochs"] == 4
    finally:
        database.close()
    assert living(folder) == []
