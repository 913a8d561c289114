"""A worker whose trainings run in a process of their own, which only pretends to train: what is
made ready meanwhile, and what becomes of it when that process ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.device_hours import hours_of
from tests.support.in_process_worker import DEVICE, study_in
from tests.support.paths import SCRIPTS
from tests.support.trial_jobs import job_of
from tuner.config import EpochRecord, StopReason
from tuner.devices import exclusive
from tuner.devices.backend_rules import BackendChoice
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy
from tuner.trial.job import TrainerLostError
from tuner.worker.loop import Worker
from tuner.worker.paths import WorkerPaths
from tuner.worker.process import STARTING, Beat, StopFlag
from tuner.worker.process import TRAINER as TRAINER_LIFE
from tuner.worker.trainer import TrainerProcess
from tuner.worker.trial_source import TrialTimes
from tuner.worker.work_source import MeasuredBackend

TRAINER = (sys.executable, str(SCRIPTS / "pretend_trainer.py"))
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainerProcess]:
    """One process for all tests that leave it alive, at work in a folder with locks of its own."""
    place = tmp_path_factory.mktemp("trainer")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("TUNER_LOCK_DIR", str(place.with_name("locks-of-trainers")))
        with trainer() as run:
            yield run


@pytest.fixture
def folder(shared: TrainerProcess) -> Iterator[Path]:
    """Where the trainers of a test are at work, empty."""
    place = Path.cwd()
    yield place
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def trainer() -> Iterator[TrainerProcess]:
    process = TrainerProcess(DEVICE, None, TRAINER)
    try:
        assert process.load(dict, lambda: False, lambda _phase: None)
        yield process
    finally:
        process.close()


@contextmanager
def study(folder: Path, name: str, trials: int) -> Iterator[OpenStudy]:
    database = open_database(parse_url(f"sqlite:///{folder}/{name}.db"))
    opened = study_in(database, trials)
    opened.set_policy(SearchPolicy(sampler="tpe", seed=1))
    yield opened
    database.close()


def worker(opened: OpenStudy, run: TrainerProcess, stop: StopFlag | None = None) -> Worker:
    paths = WorkerPaths(Path.cwd())
    return Worker([opened], DEVICE, run, name="ann", lanes=2, paths=paths, stop=stop)


def parameters(opened: OpenStudy) -> list[dict[str, object]]:
    return [trial.params for trial in opened.optuna.trials]


def test_the_next_trial_is_ready_when_the_last_one_ends_and_no_two_train_at_once(
    folder: Path, shared: TrainerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = TrialTimes.asked

    def tells(times: TrialTimes) -> None:
        asked(times)
        with Path("asked").open("a") as told:
            told.write("a trial\n")

    monkeypatch.setattr(TrialTimes, "asked", tells)
    Path("asked").touch()
    with study(folder, "first", 20) as opened:
        worker(opened, shared).run()
        trials = opened.optuna.trials
        assert [trial.state.name for trial in trials] == ["COMPLETE"] * 20
        assert opened.ledger.counts().finished == 20
        assert [[row.epoch for row in opened.epochs.of_trial(n)] for n in (0, 19)] == [
            [1, 2, 3]
        ] * 2
        first = parameters(opened)
        later = [trial.user_attrs for trial in trials[1:]]
    trained = [line.split() for line in Path("trainings").read_text().splitlines()]
    assert [int(number) for number, _, _ in trained] == list(range(20))
    ends = [float(end) for _, _, end in trained]
    begins = [float(begin) for _, begin, _ in trained]
    assert all(begun >= ended for begun, ended in zip(begins[1:], ends[:-1], strict=True))
    # What was asked while the one before trained kept nobody waiting.
    # Where nothing could be claimed for a moment, the next one waited for nothing that is known.
    assert sum(each.get("suggest_wait_s") == 0 for each in later) >= 15
    assert min(each["suggest_s"] for each in later) > 0
    Path("asked").write_text("")
    with study(folder, "again", 20) as opened:
        worker(opened, shared).run()
        assert parameters(opened) == first


def test_a_worker_that_is_told_to_stop_hands_back_both_trials(
    folder: Path, shared: TrainerProcess
) -> None:
    stop = StopFlag()
    Path("hold-2").touch()
    with study(folder, "stopped", 20) as opened:
        ends = _once(lambda: len(opened.optuna.trials) == 4, stop.set)
        worker(opened, shared, stop).run()
        ends.join()
        states = [trial.state.name for trial in opened.optuna.trials]
        # The one that trained, and the one that was made ready meanwhile.
        assert states == ["COMPLETE", "COMPLETE", "WAITING", "WAITING"]
        assert opened.roster.working() == ()


def test_a_stop_is_heard_while_one_epoch_follows_the_other(
    folder: Path, shared: TrainerProcess
) -> None:
    """Each within the time between two looks of the worker."""
    told: list[EpochRecord] = []
    job = job_of(
        folder=folder,
        device=DEVICE,
        on_epoch=lambda record, _repeat: told.append(record),
        should_stop=lambda: StopReason.INTERRUPTED if told else None,
    )
    assert shared(job) is None
    assert len(told) < 3


def test_a_trainer_that_is_killed_costs_one_trial_an_attempt_and_nothing_else(
    folder: Path, shared: TrainerProcess
) -> None:
    number = 3
    Path(f"kill-{number}").touch()
    with study(folder, "killed", 6) as opened:
        with trainer() as run, pytest.raises(TrainerLostError, match="was ended by SIGKILL"):
            worker(opened, run).run()
        trials = opened.optuna.trials
        assert [each.state.name for each in trials[number:]] == ["WAITING", "WAITING"]
        worker(opened, shared).run()
        trials = opened.optuna.trials
        assert [each.state.name for each in trials] == ["COMPLETE"] * 6
        assert opened.ledger.counts().finished == 6
        attempts = [each.user_attrs["attempts"] for each in trials]
        assert attempts[number] == 2
        assert [line.split()[0] for line in Path("trainings").read_text().splitlines()] == [
            str(each) for each in range(6)
        ]


def test_a_trainer_that_measured_a_backend_is_told_which_one_counts(
    folder: Path, shared: TrainerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker answers in the middle of a training, and knows what was measured before."""
    first: list[BackendChoice] = []

    def settle(_: MeasuredBackend, choice: BackendChoice) -> BackendChoice:
        first.append(choice)
        return first[0]

    monkeypatch.setattr(MeasuredBackend, "settle", settle)
    (folder / "measures").touch()
    with study(folder, "measured", 3) as opened:
        worker(opened, shared).run()
        assert [each.state.name for each in opened.optuna.trials] == ["COMPLETE"] * 3
    assert [each.reason for each in first] == [f"measured by trial {n}" for n in range(3)]
    assert (folder / "backends").read_text().splitlines() == ["measured by trial 0"] * 3


@pytest.mark.parametrize("given_up", [False, True])
def test_what_it_waited_for_the_lock_of_its_device_costs_no_device_hours(
    folder: Path, shared: TrainerProcess, given_up: bool
) -> None:
    stop = StopFlag()
    with study(folder, "waited", 1) as opened:
        opened.set_policy(SearchPolicy(sampler="random", max_gpu_s=100.0))
        hours = hours_of([opened])
        with exclusive(DEVICE.lock_names):
            thread = threading.Thread(target=worker(opened, shared, stop).run)
            thread.start()
            _wait(lambda: hours.spent_s() > 0)
            time.sleep(1.0)
            if given_up:
                stop.set()
                thread.join()
        thread.join()
        assert hours.spent_s() < 0.7
        recorded = [Recorded.from_flat(each.user_attrs) for each in opened.optuna.trials]
        assert [(each.wait_s or 0.0) > 0.9 for each in recorded] == [not given_up]


def test_a_trainer_gives_signs_of_its_own_life() -> None:
    heard, beating = os.pipe()
    process = TrainerProcess(DEVICE, beating, TRAINER)
    try:
        assert process.load(dict, lambda: False, lambda _phase: None)
        lines = os.read(heard, 1 << 16).splitlines()
    finally:
        process.close()
        os.close(heard)
        os.close(beating)
    beats = [Beat.from_line(line) for line in lines]
    assert {beat.source for beat in beats} == {TRAINER_LIFE}
    assert beats[0].phase == STARTING


def test_a_trainer_ends_with_its_worker() -> None:
    script = (
        "import os, sys, time\n"
        "from tuner.devices import CpuCores\n"
        "from tuner.worker.trainer import TrainerProcess\n"
        f"run = TrainerProcess(CpuCores((0,)), None, {TRAINER!r})\n"
        "run.load(dict, lambda: False, lambda _phase: None)\n"
        "print(run._child.popen.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    _wait(lambda: not _runs(int(done.stdout)))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _once(happened: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    def look() -> None:
        _wait(happened)
        then()

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def _wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)
