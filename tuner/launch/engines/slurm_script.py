"""The batch script of the workers: one array, each of its tasks a worker on one device.

Three signals reach the script's shell. USR1 comes from Slurm before the time limit: the worker
hands back its trial with a checkpoint, and the task is queued again. USR2 comes from the launch:
the worker hands back, and that was it. TERM comes from Slurm to all processes of a task that is
cancelled or preempted; whether it is queued again then, Slurm decides.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.errors import TERMINATED
from tuner.files.environment import STORAGE_VARIABLE
from tuner.launch.engines.slurm_settings import SlurmSettings

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


def _options(settings: SlurmSettings, workers: int, *, on_cpu: bool) -> Iterator[str]:
    yield "--job-name=tuner"
    yield f"--array=1-{workers}"
    yield "--nodes=1"
    yield "--ntasks=1"
    yield f"--cpus-per-task={cores_of(settings, on_cpu=on_cpu)}"
    gres = settings.gres or (None if on_cpu else "gpu:1")
    named = {
        "gres": gres,
        "mem": settings.memory,
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "reservation": settings.reservation,
        "time": settings.time,
        "constraint": settings.constraint,
        "nodelist": settings.nodelist,
        "exclude": settings.exclude,
    }
    for name, value in named.items():
        if value is not None:
            yield f"--{name}={value}"
    yield "--requeue"
    yield f"--signal=B:USR1@{settings.notice}"
    yield "--open-mode=append"
    yield f"--output={LOGS}/slurm-%A_%a.log"
