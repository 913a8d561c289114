"""The `tuner` command as people run it: real processes in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
from sqlalchemy import select

from tests.support import forked_cli
from tests.support.fork_server import SUPERVISED
from tests.support.forked_cli import Done
from tests.support.small_study import write_files, write_paced
from tuner.errors import TunerError
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.queue.claims import ATTEMPTED
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study

PATIENCE_S = 120.0
STUDY = "tiny-small"
CORES = sorted(os.sched_getaffinity(0))
T = TypeVar("T")


@dataclass
class Bench:
    """A folder with the small study's files, and the commands that run in it against one
    database."""

    folder: Path
    url: str
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_files(self.folder)
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("TUNER_", "PG"))
        }
        # Whatever else runs on this machine: its device locks are not ours.
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self.environment = {
            **kept,
            "PYTHONPATH": forked_cli.python_path(),
            "TUNER_STORAGE": self.url,
            "TMPDIR": str(temporary),
            "TUNER_LOCK_DIR": str(temporary / "tuner-device-locks"),
            "COLUMNS": "200",
            **self.environment,
        }

    def slowed(self) -> Path:
        """Trials of dozens of epochs last minutes from now on, until the file returned here is
        gone.

        None ends before it was looked at, however late the look.
        """
        slow = write_paced(self.folder)
        slow.touch()
        return slow

    def start(self, *arguments: str, cores: int | None = None) -> subprocess.Popen[str]:
        """Start a command on the first `cores` cores (all)."""
        return forked_cli.start(
            *arguments, folder=self.folder, environment=self.environment, cores=CORES[:cores]
        )

    def start_afresh(self, *arguments: str, cores: int | None = None) -> subprocess.Popen[str]:
        """The same with a Python of its own, from the start: it and its workers show what they
        are."""
        return subprocess.Popen(
            [sys.executable, "-m", "tuner", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, CORES[:cores]),  # noqa: PLW1509 - one system call, no locks
        )

    def run(self, *arguments: str, cores: int | None = None, **environment: str | None) -> Done:
        merged = {**self.environment, **environment}
        return forked_cli.run(
            *arguments, folder=self.folder, environment=merged, cores=CORES[:cores]
        )

    def launch_arguments(self, trials: int, *, workers: int = 1, epochs: int = 2) -> list[str]:
        return (
            f"launch --variant small.toml --task tiny.toml --cpu --workers {workers} --trials "
            f"{trials} "
            f"--max-epochs {epochs} --sampler random --reruns 0"
        ).split()

    def launch(self, trials: int, *more: str, workers: int = 1, epochs: int = 2) -> Done:
        return self.run(
            *self.launch_arguments(trials, workers=workers, epochs=epochs), *more, cores=workers
        )

    @contextmanager
    def launched(
        self, trials: int, *more: str, workers: int = 1, epochs: int = 2, afresh: bool = False
    ) -> Iterator[subprocess.Popen[str]]:
        """A launch that runs meanwhile; whatever is left of it at the end is killed."""
        start = self.start_afresh if afresh else self.start
        process = start(
            *self.launch_arguments(trials, workers=workers, epochs=epochs), *more, cores=workers
        )
        try:
            yield process
        finally:
            kill([*workers_of(process.pid), process])
            process.communicate()

    @contextmanager
    def opened(self) -> Iterator[OpenStudy]:
        with self.database() as database:
            yield open_study(database, STUDY)

    def allow(self, trials: int, study: str = STUDY) -> None:
        """Let a study hold so many finished trials, as a launch that ran none would."""
        with self.database() as database:
            open_study(database, study).ledger.set_budget(trials)

    @contextmanager
    def database(self) -> Iterator[Database]:
        database = open_database(parse_url(self.url), create=False)
        try:
            yield database
        finally:
            database.close()

    def claims(self) -> list[tuple[str, int | None]]:
        """State and trial of every claim, in order."""
        with self.database() as database, database.engine.connect() as connection:
            c = schema.work.c
            query = select(c.state, c.trial_number).where(ATTEMPTED).order_by(c.work_id)
            return [tuple(row) for row in connection.execute(query)]

    def trials(self) -> list[tuple[int, str]]:
        with self.opened() as study:
            return [
                (trial.number, trial.state.name)
                for trial in study.optuna.get_trials(deepcopy=False)
            ]

    def wait_until_training(
        self, process: subprocess.Popen[str], *, workers: int = 1, epochs: int = 1
    ) -> None:
        """Until that many workers have finished so many epochs of the trial they are at."""

        def training() -> bool:
            assert process.poll() is None, f"the launch ended early: {process.communicate()}"
            return (
                study is not None
                and sum((row.epoch or 0) >= epochs for row in study.roster.working()) >= workers
            )

        with contextlib.ExitStack() as stack:
            study = None
            while study is None:
                assert process.poll() is None, f"the launch ended early: {process.communicate()}"
                with contextlib.suppress(
                    TunerError
                ):  # neither the database nor the study may be there yet
                    study = stack.enter_context(self.opened())
                time.sleep(0.2)
            wait_for(training, "a trial that trains")

    def log_text(self) -> str:
        return "".join(path.read_text() for path in self.folder.rglob("worker-*.log"))


def finished(process: subprocess.Popen[str]) -> Done:
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the command did not end:\n{out}{err}") from None
    return Done(process.returncode, out, err)


def wait_for(condition: Callable[[], T], what: str, *, patience_s: float = PATIENCE_S) -> T:
    """What `condition` finds. What takes long is looked at more seldom: others want the cores."""
    deadline = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < deadline, f"waited {patience_s:.0f} s in vain for {what}"
        time.sleep(max(0.1, 4.0 * (now - began)))


def workers_of(supervisor: int) -> list[psutil.Process]:
    """The living workers that this launch started, also when it is dead itself."""
    mark = [SUPERVISED, str(supervisor)]
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            its_own = process.name() == f"of-{supervisor}" or any(
                line[i : i + 2] == mark for i in range(len(line))
            )
            if its_own and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def family_of(*pids: int) -> Iterator[set[int]]:
    """Numbers of these processes and of whoever descends from them, looked for until the end."""
    found, ended = set(pids), threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            for pid in pids:
                with contextlib.suppress(psutil.Error):
                    found.update(each.pid for each in psutil.Process(pid).children(recursive=True))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        ended.set()
        looking.join()


def strangers(contamination: str) -> set[int]:
    """Numbers of the processes that a trial was not alone with, as its record says it."""
    listed = re.search(r"other processes on the GPU: ([\d, ]+)", contamination)
    return set() if listed is None else {int(number) for number in listed[1].split(", ")}


def kill(processes: Iterable[psutil.Process | subprocess.Popen[str]]) -> None:
    """Whoever has not ended meanwhile."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def interrupt(process: subprocess.Popen[str], how: signal.Signals = signal.SIGINT) -> Done:
    process.send_signal(how)
    return finished(process)
