"""Kernels compiled in the background of a launch, while its workers start and train.

Nothing depends on it: a worker that meets a kernel first compiles it itself, and one that fails
here fails there, in a trial, with its reason.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.data.source_kinds import OF_FILES
from tuner.data.task import Task, load_task
from tuner.devices import CpuCores, Gpu
from tuner.devices.cpu import available_cores
from tuner.devices.gpu import compute_capability
from tuner.files.child import ChildError, ChildProcess, last_line
from tuner.files.environment import without_secrets
from tuner.spec.definition import StudyDefinition
from tuner.trial.ahead.compile_order import (
    Capability,
    Order,
    Progress,
    Search,
    cache_folder,
    read_stamp,
    stamp_path,
    why_none,
)

# The process that compiles kernels ahead, from outside: started, heard, and ended.


COMMAND = (sys.executable, "-m", "tuner.trial.ahead.compile_all")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""It forks: no library may start threads while it is imported."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""It must not appear on a GPU beside somebody's timed training."""


@dataclass(slots=True)
class CompilingProcess:
    """One order being compiled.

    Attributes:
        log: gets what the compilers complain of.
        progress: as last heard.
    """

    child: ChildProcess
    log: Path
    progress: Progress = field(default_factory=Progress)
    _told: int = -1
    _tell_next: float = 0.0

    @staticmethod
    def start(
        order: Order, environment: Mapping[str, str], log: Path, command: Sequence[str] = COMMAND
    ) -> CompilingProcess:
        """Begin; the caller ends its child, also when it has ended by itself."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as complaints:
            child = ChildProcess(
                "the process that compiles",
                command,
                environment=without_secrets({**environment, **ONE_THREAD, **NO_GPU}),
                log=complaints,
                told=True,
                asked=True,
            )
        child.give(pickle.dumps(order))  # of one that has ended, its exit code says more
        return CompilingProcess(child, log)

    def look(self) -> int | None:
        """Take in what it said; its exit code, once it has one."""
        code = self.child.code  # before reading: what it said last is there by then
        with contextlib.suppress(ChildError):  # what is no line is no progress: nothing hangs on it
            for line in self.child.lines.came():
                with contextlib.suppress(ValueError):
                    self.progress = Progress.from_line(line)
        return code

    def has_news(self, every_s: float) -> bool:
        """Whether more is ready than when this was last so, which is some seconds ago."""
        ready, now = self.progress.ready, time.monotonic()
        if ready == self._told or now < self._tell_next:
            return False
        self._told, self._tell_next = ready, now + every_s
        return True


SPARED_CORES, MANY_CORES = 2, 4
"""So many are left to trials and the launch itself, on machines that have at least so many."""
MOST_JOBS = 32
"""At the same time: a search has a hundred kernels, and each compiler needs 300 MB."""
SAY_S = 5.0


@contextmanager
def compiled_in_background(
    order: Order | None,
    environment: Mapping[str, str],
    log: Path,
    note: Callable[[str], None],
    command: Sequence[str] = COMMAND,
) -> Iterator[Callable[[], None]]:
    """An order compiled as long as the context lasts; what it gives is called now and then.

    Args:
        order: None where nothing is to be compiled.
        environment: of the workers.
        log: a file for what the compilers complain of.
        note: gets a line for a person, sometimes.
        command: the process that compiles.
    """
    if order is None:
        yield lambda: None
        return
    try:
        compiling = CompilingProcess.start(order, environment, log, command)
    except OSError as error:
        note(f"kernels are not compiled in the background: {error}")
        yield lambda: None
        return
    over = False

    def look() -> None:
        """Say how far it is, now and then, and how it ended."""
        nonlocal over
        if over:
            return
        code, seen = compiling.look(), compiling.progress
        over, left = code is not None, seen.found - seen.there
        if code:
            note(
                "compiling kernels in the background failed, so workers compile what they meet: "
                f"{last_line(log)} (log: {log})"
            )
        elif left and over:
            note(f"compiled kernels in the background: {seen.ready} of {seen.found}")
        elif left and compiling.has_news(SAY_S):
            note(f"compiling kernels in the background: {seen.ready} of {seen.found}")

    try:
        yield look
    finally:
        compiling.child.end()


def order_for(
    definitions: Sequence[StudyDefinition],
    devices: Sequence[Gpu | CpuCores],
    *,
    task: str | None,
    data_dir: Path | None,
    environment: Mapping[str, str],
) -> Order | None:
    """What workers of these studies on these devices will need and nobody has compiled yet.

    None where that is nothing: it takes milliseconds then.

    Raises:
        UsageError: the task file of a study on a file of the user's is not there.
    """
    meant = [each for each in definitions if why_none(each) is None]
    if not meant or not isinstance(devices[0], Gpu):
        return None
    capability = compute_capability(devices[0])
    if capability is None:
        return None
    tasks = [(each, _task_of(each, task)) for each in meant]
    searches = [Search(definition=each, task=known) for each, known in tasks if known is not None]
    missing = missing_of(searches, capability, cache_folder(environment))
    if not missing:
        return None
    return Order(capability=capability, searches=missing, data_dir=data_dir, jobs=background_jobs())


def missing_of(searches: Sequence[Search], capability: Capability, cache: Path) -> list[Search]:
    """One search of each kind that has no stamp in the cache."""
    by_stamp = {stamp_path(cache, each, capability): each for each in searches}
    return [each for path, each in by_stamp.items() if read_stamp(path) is None]


def background_jobs() -> int:
    """How many kernels are compiled at a time beside trials that are timed."""
    cores = len(available_cores())
    return min(cores - SPARED_CORES, MOST_JOBS) if cores >= MANY_CORES else 1


def _task_of(definition: StudyDefinition, task: str | None) -> Task | None:
    if definition.task["source"]["kind"] in OF_FILES:
        return load_task(task) if task is not None else None
    return Task.model_validate(definition.task)
