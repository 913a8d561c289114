"""Slurm as an engine: one job array, each of its tasks a worker, queued again at its time limit.

The array is at work without the launching process, which only looks on, and ends it where asked.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import UsageError
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE
from tuner.launch.child import last_line
from tuner.launch.engines import slurm_client
from tuner.launch.engines.placement import (
    Place,
    Placement,
    PlaceState,
    WorkerCommand,
    read_settings,
    workers_asked,
)
from tuner.launch.engines.slurm_client import CHECK, SlurmSilentError, Task, slurm_environment
from tuner.launch.engines.slurm_script import LOGS, SlurmSettings, batch_script, cores_of, log_of
from tuner.launch.request import DeviceChoice
from tuner.storage.url import DatabaseUrl

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
MOST_TASKS = 10_000
FIRST_LOOKS_S, LATER_LOOKS_S, LAST_LOOKS_S = 1.0, 10.0, 1.0
"""Between two looks at the queue, which all users of a cluster share: at first, once a minute has
passed, and while the workers end."""
NEW_S = 60.0
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_WAITING |= {"SUSPENDED", "STOPPED", "RESV_DEL_HOLD"}
_ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
_ENDED |= {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
_BY_ITSELF = {"COMPLETED", "FAILED"}
_REASONS = {
    "None": "it was queued just now",
    "BeginTime": "it was queued again, and Slurm begins such a task after two minutes",
}
"""In words, where Slurm's own say little."""
_log = logging.getLogger(__name__)


def slurm_engine(choice: DeviceChoice) -> SlurmEngine:
    """Slurm, as it is asked for here.

    Raises:
        UsageError: what was asked for is no number of workers, or nothing that Slurm can be told.
    """
    settings = read_settings(SlurmSettings, choice.placement, table="slurm")
    workers = workers_asked(choice)
    if workers > MOST_TASKS:
        raise UsageError(f"--on slurm: {workers} workers; an array has at most {MOST_TASKS}")
    return SlurmEngine(
        settings=settings,
        workers=workers,
        on_cpu=choice.cpu,
        print_only=choice.print_only,
        folder=Path.cwd(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmEngine:
    """The cluster whose `sbatch` is on the PATH."""

    settings: SlurmSettings
    workers: int
    on_cpu: bool
    folder: Path
    """Where the workers work: every node sees it under this path."""
    print_only: bool = False
    notice: str = ""

    @property
    def label(self) -> str:
        return "Slurm"

    @property
    def cores(self) -> int | None:
        return cores_of(self.settings, on_cpu=True) if self.on_cpu else None

    def check(self, address: DatabaseUrl) -> None:
        if address.is_sqlite:
            raise UsageError(
                "an SQLite database is one file of one host, and Slurm places workers on any: "
                "share a PostgreSQL (docs/several-machines.md)"
            )
        if self.print_only:
            return
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise UsageError(f"--on slurm: {', '.join(missing)} not found on the PATH; {CHECK}")
        try:
            slurm_client.ask("scontrol", "ping")
        except SlurmSilentError as error:
            raise SlurmSilentError(
                f"Slurm's controller does not answer: {error}; {CHECK}"
            ) from None

    @contextmanager
    def place(self, command: WorkerCommand) -> Iterator[Placement]:
        (self.folder / LOGS).mkdir(parents=True, exist_ok=True)
        array = SlurmArray(self, command)
        array.submit()
        try:
            yield array
        finally:
            array.cancel()

    def in_words(self, command: WorkerCommand) -> str:
        """Slurm writes the workers' logs into a folder that is there, and makes none."""
        (self.folder / LOGS).mkdir(parents=True, exist_ok=True)
        words = (sys.executable, "-m", "tuner", *command.words()[1:])
        return batch_script(
            self.settings, words, workers=self.workers, on_cpu=self.on_cpu, folder=self.folder
        )


@dataclass(slots=True)
class SlurmArray:
    """The workers of a launch: a job, and after `again` the next."""

    engine: SlurmEngine
    command: WorkerCommand
    _job: int = 0
    _places: dict[int, Place] = field(default_factory=dict)
    _submitted: float = 0.0
    _looked: float = 0.0
    _silent: bool = False
    """Whether the controller did not answer at the last look."""
    _ending: bool = False

    def submit(self) -> None:
        """Raises TunerError where Slurm refuses."""
        script = self.engine.in_words(self.command)
        self._job = slurm_client.submit(script, self._environment(), self.engine.folder)
        self._places = {n: self._waits(n, "None") for n in range(1, self.engine.workers + 1)}
        self._submitted = time.monotonic()

    def look(self) -> Sequence[Place]:
        if self._due():
            self._look_at_the_queue()
            self._looked = time.monotonic()
        return list(self._places.values())

    def stop(self) -> None:
        self._ending, self._looked = True, 0.0
        if not self._over():
            self._tell(lambda: slurm_client.hand_back(self._job), "hand back")

    def again(self) -> None:
        self.submit()  # all have ended: a new array is the same as that one queued again

    def cancel(self) -> None:
        """End what is left."""
        if not self._over():
            self._tell(lambda: slurm_client.cancel(self._job), "end")

    def _environment(self) -> dict[str, str]:
        environment = slurm_environment({STORAGE_VARIABLE: self.command.address.full()})
        if self.command.data_dir is None:  # as here, where nobody asked the environment
            environment.pop(DATA_VARIABLE, None)
        for key in ("account", "partition", "qos", "reservation"):
            if getattr(self.engine.settings, key) is not None:  # a variable would go before it
                environment.pop(f"SBATCH_{key.upper()}", None)
        return environment

    def _due(self) -> bool:
        now = time.monotonic()
        pause_s = LATER_LOOKS_S if now - self._submitted > NEW_S else FIRST_LOOKS_S
        return not self._over() and now - self._looked >= (
            LAST_LOOKS_S if self._ending else pause_s
        )

    def _over(self) -> bool:
        return all(each.state is PlaceState.ENDED for each in self._places.values())

    def _look_at_the_queue(self) -> None:
        """What is not known at present stays as it was: workers go on without the controller."""
        try:
            tasks = {task.number: task for task in slurm_client.queue_of(self._job)}
        except SlurmSilentError as error:
            if not self._silent:
                _log.warning("%s; job %d goes on, and we ask again", error, self._job)
            self._silent = True
            return
        self._silent = False
        for number, known in self._places.items():
            if known.state is PlaceState.ENDED:
                continue
            if (task := tasks.get(number, tasks.get(None))) is not None:
                self._places[number] = self._as_place(number, task)
            else:
                why = "Slurm does not know it any more"
                self._places[number] = Place(name=known.name, state=PlaceState.ENDED, why=why)

    def _as_place(self, number: int, task: Task) -> Place:
        if task.state in _WAITING:
            return self._waits(number, task.reason)
        name = f"{self._job}_{number}" + (f" on {task.node}" if task.node else "")
        if task.state not in _ENDED:
            return Place(name=name, state=PlaceState.WORKING)
        code = None
        if task.state in _BY_ITSELF:
            code = os.waitstatus_to_exitcode(task.status)
        return Place(
            name=name, state=PlaceState.ENDED, code=code, why=self._last_words(number, task)
        )

    def _waits(self, number: int, reason: str) -> Place:
        why = _REASONS.get(reason, reason)
        return Place(
            name=f"{self._job}_{number}",
            state=PlaceState.WAITING,
            why=f"{why} (job {self._job})",
        )

    def _last_words(self, number: int, task: Task) -> str:
        how = "" if task.state in _BY_ITSELF else f"{task.state.lower()}: "
        log = self.engine.folder / log_of(self._job, number)
        try:
            return f"{how}{last_line(log)}"
        except OSError:
            return (
                f"{how}it left no log ({task.reason}); does its node see {self.engine.folder}, and "
                "the same Python?"
            )

    def _tell(self, call: Callable[[], None], what: str) -> None:
        """Have the array do something, where Slurm answers; else it is said how to do it."""
        try:
            call()
        except SlurmSilentError as error:
            _log.warning(
                "the workers could not be told to %s: %s; end them with: scancel %d",
                what,
                error,
                self._job,
            )
