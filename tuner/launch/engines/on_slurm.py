"""Slurm as an engine: one job array, each of its tasks a worker, queued again at its time limit.

The array is at work without the launching process, which only looks on, and ends it where asked.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from tuner.errors import TERMINATED, TunerError, UsageError
from tuner.files.child import SilentError, last_line, ran
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE
from tuner.files.plain import Strict, excerpt
from tuner.launch.engines.placement import (
    Place,
    Placement,
    PlaceState,
    WorkerCommand,
    read_settings,
    refuse_sqlite,
    workers_asked,
)
from tuner.launch.request import DeviceChoice
from tuner.storage.url import DatabaseUrl

# The batch script of the workers: one array, each of its tasks a worker on one device.


# What Slurm is told of the workers beside their number: the keys of `--placement`, checked.


LEAST_LEFT_S = 30
"""Of a time limit beside the notice: less, and a worker would be stopped before it began."""
_TIME = re.compile(
    r"^(?:(?P<days>\d{1,4})-(?P<of_day>\d{1,2}(?::\d{1,2}){0,2})|(?P<short>\d{1,7}(?::\d{1,2}){0,2}))$",
    re.ASCII,
)

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,127}$")]
Words = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+,-]{0,511}$")]
"""One, or several with commas."""
Hosts = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,511}$")]
Features = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(!][A-Za-z0-9_.:,&|*!()\[\]-]{0,511}$")]
Memory = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}[KMGT]?$")]


def limit_s(text: str) -> int:
    """Seconds of a time limit as Slurm writes it: `30` are minutes, `2:00:00` hours, `1-0` a day.

    Raises:
        ValueError: it is none.
    """
    found = _TIME.match(text)
    if found is None:
        raise ValueError("no time limit; expected e.g. 30 (minutes), 2:00:00 or 1-12:00:00")
    if found["days"] is not None:
        parts = [int(part) for part in found["of_day"].split(":")]
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = [int(part) for part in found["short"].split(":")]
    if len(parts) == 3:  # noqa: PLR2004 - hours, minutes, seconds
        return (parts[0] * 60 + parts[1]) * 60 + parts[2]
    minutes, seconds = (*parts, 0)[:2]
    return minutes * 60 + seconds


def _time(text: str) -> str:
    limit_s(text)
    return text


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds a control character; one line of a shell has none")
    return text


TimeLimit = Annotated[str, AfterValidator(_time)]
Line = Annotated[str, Field(max_length=2000), AfterValidator(_line)]


class SlurmSettings(Strict):
    """The keys of `--placement`, or of the table `[slurm]`, that Slurm takes."""

    partition: Words | None = None
    account: Word | None = None
    qos: Word | None = None
    reservation: Word | None = None
    time: TimeLimit | None = None
    """At most so long a worker runs before Slurm begins it anew; None: what the partition has."""
    gres: Words | None = None
    """The GPU of a worker: `gpu:h100:1`. By default `gpu:1`."""
    constraint: Features | None = None
    nodelist: Hosts | None = None
    exclude: Hosts | None = None
    cores: int | None = Field(None, ge=1, le=4096)
    """Of each worker. By default 1, and 4 beside a GPU."""
    memory: Memory | None = None
    """Of each worker: `16G`."""
    notice: int = Field(90, ge=10, le=3600)
    """Seconds before the time limit at which a worker is told to hand back what it runs. Slurm
    rounds up by as much as a minute."""
    setup: tuple[Line, ...] = Field((), max_length=100)
    """Lines of a shell before the worker: `module load cuda`. In a file only: it is code."""

    @model_validator(mode="after")
    def _leaves_time(self) -> Self:
        if self.time is not None and limit_s(self.time) < self.notice + LEAST_LEFT_S:
            raise ValueError(
                f"time={self.time} leaves a worker nothing; expected {LEAST_LEFT_S} s more than "
                f"the notice of {self.notice} s before its end"
            )
        return self


LAST_SIGNAL = "USR2"
"""Tells a task to hand back and to end, without another turn."""
LOGS = Path("storage") / "logs"
"""Of the folder that a launch works in. Slurm writes there what a worker says."""
CORES_BESIDE_GPU, CORES_ON_CPU = 4, 1
REQUEUES, REQUEUE_S = 60, 2
"""How often a task asks to be queued again, and how many seconds lie between: Slurm ends what has
no time left.
"""

_SHELL = f"""\
set -u
: "${{{STORAGE_VARIABLE}:?set it to the address of the database before sbatch}}"
worker= why=
hand_back() {{
  why=$1
  [ -z "$worker" ] || kill -TERM "$worker" 2>/dev/null
}}
trap 'hand_back time' USR1
trap 'hand_back over' {LAST_SIGNAL}
trap 'hand_back told' TERM
COMMAND </dev/null &
worker=$!
[ -z "$why" ] || kill -TERM "$worker"
wait "$worker"
while kill -0 "$worker" 2>/dev/null; do wait "$worker"; done # a signal ends a wait, not the worker
wait "$worker"
code=$?
case $why:$code in
  :* | *:[012]) exit $code ;; # it ended by itself
  over:*) exit 0 ;; # it handed back, or bash lost its code, as it may where a signal meets an end
  time:*) # a controller that does not answer may soon, while there is time
    for _ in {{1..{REQUEUES}}}; do
      scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && exit 0
      sleep {REQUEUE_S}
    done ;;
esac
exit {TERMINATED}
"""


def log_of(job: int, task: int) -> Path:
    """What a worker of the array said, from the launch's folder."""
    return LOGS / f"slurm-{job}_{task}.log"


def cores_of(settings: SlurmSettings, *, on_cpu: bool) -> int:
    """How many each worker gets."""
    return settings.cores or (CORES_ON_CPU if on_cpu else CORES_BESIDE_GPU)


def batch_script(
    settings: SlurmSettings, command: Sequence[str], *, workers: int, on_cpu: bool, folder: Path
) -> str:
    """What `sbatch` reads: it holds no secret. The database's address is in the environment.

    Args:
        settings: what Slurm is told.
        command: of a worker, from its program on.
        workers: how many tasks the array has.
        on_cpu: whether the workers have cores only, and no GPU.
        folder: where the workers work, on every node.
    """
    told = "\n".join(f"#SBATCH {option}" for option in _options(settings, workers, on_cpu=on_cpu))
    setup = "".join(f"{line}\n" for line in settings.setup)
    shell = _SHELL.replace("COMMAND", shlex.join(command), 1)
    go = f"cd -- {shlex.quote(str(folder))} || exit 1"
    return f"#!/bin/bash\n{told}\n{go}\n{setup}{shell}"


_AS_IN_SLURM = (
    *("partition", "account", "qos", "reservation", "time"),
    *("constraint", "nodelist", "exclude"),
)


def _options(settings: SlurmSettings, workers: int, *, on_cpu: bool) -> Iterator[str]:
    yield "--job-name=tuner"
    yield f"--array=1-{workers}"
    yield "--nodes=1"
    yield "--ntasks=1"
    yield f"--cpus-per-task={cores_of(settings, on_cpu=on_cpu)}"
    gres = settings.gres or (None if on_cpu else "gpu:1")
    named = {"gres": gres, "mem": settings.memory}
    named |= {name: getattr(settings, name) for name in _AS_IN_SLURM}
    for name, value in named.items():
        if value is not None:
            yield f"--{name}={value}"
    yield "--requeue"
    yield f"--signal=B:USR1@{settings.notice}"
    yield "--open-mode=append"
    yield f"--output={LOGS}/slurm-%A_%a.log"


# Slurm's own commands, as a launch calls them; what they answer is checked.


ANSWER_S = 20.0
"""So long a command may take that only looks; Slurm's own give up after ten seconds."""
SUBMIT_S = 120.0
_COLUMNS = {"ArrayTaskID": 16, "State": 24, "exit_code": 16, "NodeList": 128, "Reason": 200}
_STEERING = re.compile(
    r"^(SQUEUE|SCANCEL|SINFO|SCONTROL)_"
    r"|^SLURM_(CLUSTERS|EXIT_ERROR|TIME_FORMAT)$"
    r"|^SBATCH_(?!(ACCOUNT|PARTITION|QOS|RESERVATION)$)"
)
"""Variables that would change what we ask, or how it is answered."""
CHECK = "check with: tuner doctor --on slurm"


class SlurmSilentError(TunerError):
    """The controller does not answer, or not in words that we know (exit code 1)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of an array, as the queue shows it."""

    number: int | None
    """None: all that are not listed by themselves, as those of an array that never began."""
    state: str
    status: int
    """As `wait` tells it: the exit code times 256, or the signal."""
    node: str
    reason: str


def slurm_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a command of Slurm's: ours without what would steer it, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not _STEERING.match(name)}
    return {**kept, **(more or {})}


def ask(*words: str, timeout_s: float = ANSWER_S) -> str:
    """What a command of Slurm's answers.

    Raises:
        SlurmSilentError: it failed, with what it said.
        TunerError: it is not there.
    """
    return _run(words, timeout_s=timeout_s, environment=slurm_environment({"LC_ALL": "C"}))


def submit(script: str, environment: Mapping[str, str], folder: Path) -> int:
    """Queue the script; the job's number.

    `environment` is what the tasks have: Slurm keeps it, in files that only it may read.

    Raises:
        TunerError: Slurm refuses, or is not there.
    """
    try:
        answer = _run(
            ("sbatch", "--parsable"),
            timeout_s=SUBMIT_S,
            environment=environment,
            given=script,
            folder=folder,
        )
    except SlurmSilentError as error:
        raise TunerError(f"Slurm did not take the workers: {error}; {CHECK}") from None
    found = re.match(r"^(\d{1,18})(;|$)", answer.strip(), re.ASCII)
    if found is None:
        raise TunerError(f"sbatch answered {excerpt(answer)!r} instead of a job's number; {CHECK}")
    return int(found[1])


def queue_of(job: int) -> Sequence[Task]:
    """The tasks of a job that Slurm still knows: of those that ended, for some minutes.

    Raises:
        SlurmSilentError: nothing is known at present.
        TunerError: there is no squeue.
    """
    columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
    words = ("squeue", "--noheader", "--array", "--states=all", f"--jobs={job}", "-O", columns)
    try:
        answer = ask(*words)
    except SlurmSilentError as error:
        if "Invalid job id" in str(error):  # all of it ended some minutes ago
            return []
        raise
    return [_task(line) for line in answer.splitlines() if line.strip()]


def hand_back(job: int) -> None:
    """Those that run are to hand back what they run; those that wait are taken from the queue."""
    _cancel("--state=PENDING", str(job))
    _cancel("--batch", f"--signal={LAST_SIGNAL}", str(job))


def cancel(job: int) -> None:
    """End all that is left of it."""
    _cancel(str(job))


def _cancel(*words: str) -> None:
    """Also where there is nothing left to be told."""
    try:
        ask("scancel", *words)
    except SlurmSilentError as error:
        if not re.search(r"invalid job id|already complet|not running", str(error), re.IGNORECASE):
            raise


def _run(
    words: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str],
    given: str = "",
    folder: Path | None = None,
) -> str:
    try:
        done = ran(words, within_s=timeout_s, given=given, environment=environment, folder=folder)
    except FileNotFoundError:
        raise TunerError(f"{words[0]} is not on the PATH; {CHECK}") from None
    except OSError as error:
        raise TunerError(f"{words[0]} cannot be run: {error.strerror}; {CHECK}") from None
    except SilentError as error:
        raise SlurmSilentError(str(error)) from None
    if done.code:
        said = done.last_words().strip().removeprefix(f"{words[0]}: ") or "it said nothing"
        raise SlurmSilentError(excerpt(f"{words[0]}: {said}", at_most=200))
    return done.printed


def _task(line: str) -> Task:
    """Raises SlurmSilentError where a line is none of the queue."""
    fields, at = [], 0
    for width in _COLUMNS.values():
        fields.append(line[at : at + width].strip())
        at += width
    number, state, status, node, reason = fields
    known = re.fullmatch(r"\d{1,9}", status, re.ASCII) and re.fullmatch(r"[A-Z_]+\+?", state)
    if not known or not re.fullmatch(r"N/A|[\d,\[\]%-]+", number, re.ASCII):
        raise SlurmSilentError(f"squeue: {excerpt(line.strip())!r} is no line of a queue")
    return Task(
        int(number) if number.isdecimal() else None,
        state,
        int(status),
        excerpt(node),
        excerpt(reason, at_most=100),
    )


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
        refuse_sqlite(address, "Slurm places workers on any")
        if self.print_only:
            return
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise UsageError(f"--on slurm: {', '.join(missing)} not found on the PATH; {CHECK}")
        try:
            ask("scontrol", "ping")
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
        self._job = submit(script, self._environment(), self.engine.folder)
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
            self._tell(lambda: hand_back(self._job), "hand back")

    def again(self) -> None:
        self.submit()  # all have ended: a new array is the same as that one queued again

    def cancel(self) -> None:
        """End what is left."""
        if not self._over():
            self._tell(lambda: cancel(self._job), "end")

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
            tasks = {task.number: task for task in queue_of(self._job)}
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
            name=f"{self._job}_{number}", state=PlaceState.WAITING, why=f"{why} (job {self._job})"
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
