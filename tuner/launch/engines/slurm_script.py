"""The batch script of the workers: one array, each of its tasks a worker on one device.

Three signals reach the script's shell. USR1 comes from Slurm before the time limit: the worker
hands back its trial with a checkpoint, and the task is queued again. USR2 comes from the launch:
the worker hands back, and that was it. TERM comes from Slurm to all processes of a task that is
cancelled or preempted; whether it is queued again then, Slurm decides.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from tuner.errors import TERMINATED
from tuner.files.environment import STORAGE_VARIABLE
from tuner.files.plain import Strict

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
    settings: SlurmSettings,
    command: Sequence[str],
    *,
    workers: int,
    on_cpu: bool,
    folder: Path,
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
