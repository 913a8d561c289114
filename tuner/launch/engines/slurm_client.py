"""Slurm's own commands, as a launch calls them; what they answer is checked.

Ctrl-C on a terminal reaches the launch alone: each of them is a process group of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TunerError
from tuner.files.plain import excerpt
from tuner.launch.engines.slurm_script import LAST_SIGNAL

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
        done = subprocess.run(
            words,
            input=given.encode(),
            capture_output=True,
            timeout=timeout_s,
            env=environment,
            cwd=folder,
            process_group=0,
            check=False,
        )
    except FileNotFoundError:
        raise TunerError(f"{words[0]} is not on the PATH; {CHECK}") from None
    except OSError as error:
        raise TunerError(f"{words[0]} cannot be run: {error.strerror}; {CHECK}") from None
    except subprocess.TimeoutExpired:
        raise SlurmSilentError(f"{words[0]} did not answer within {timeout_s:.0f} s") from None
    if done.returncode:
        raise SlurmSilentError(_said(words[0], done.stderr.decode(errors="replace")))
    return done.stdout.decode(errors="replace")


def _said(program: str, text: str) -> str:
    """What a command failed with, in one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "it said nothing"
    return excerpt(f"{program}: {last.removeprefix(f'{program}: ')}", at_most=200)


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
