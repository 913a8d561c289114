"""Who holds a device: a note beside its lock, for whoever waits for it, and what to do about a holder that is stopped.

The kernel knows who holds a lock, but tells only processes of the same container. The note is a courtesy: nothing is
decided by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tuner.devices.common_files import open_common
from tuner.devices.neighbours import birth

NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Holder:
    """A process. `born` tells it from a later one of the same number, and from one in another container."""

    pid: int
    host: str
    born: str

    @staticmethod
    def this_process() -> Holder:
        return Holder(os.getpid(), platform.node(), birth(os.getpid()))

    @property
    def is_stopped(self) -> bool:
        """Whether it is seen from here, and was stopped (SIGSTOP): then nothing but SIGCONT or SIGKILL ends that."""
        process = self._process()
        try:
            return process is not None and process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return False

    def __str__(self) -> str:
        process = self._process()
        if process is None:
            return f"process {self.pid} on {self.host} has it, in another container or on another machine"
        try:
            who = f"process {self.pid} of {process.username()}"
        except (psutil.Error, KeyError):
            who = f"process {self.pid}"
        if self.is_stopped:
            return f"{who} has it, and is stopped: kill -CONT {self.pid} lets it go on, kill -KILL {self.pid} ends it"
        return f"{who} has it"

    def _process(self) -> psutil.Process | None:
        try:
            return psutil.Process(self.pid) if birth(self.pid) == self.born else None
        except (psutil.Error, ValueError):
            return None


@contextmanager
def noted(path: Path) -> Iterator[None]:
    """While inside, the note says that this process holds what it lies beside."""
    with contextlib.suppress(OSError, psutil.Error):
        _write(path, json.dumps(asdict(Holder.this_process())))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _write(path, "")


def holder_of(path: Path) -> Holder | None:
    """Whom a note names; None where there is none, or none that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = json.loads(file.read(NOTE_BYTES))
        return Holder(int(content["pid"]), str(content["host"]), str(content["born"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def stopped_among(paths: Sequence[Path]) -> Holder | None:
    """A holder that is stopped, and so keeps its device from everybody until somebody sees to it."""
    return next((holder for path in paths if (holder := holder_of(path)) is not None and holder.is_stopped), None)


def _write(path: Path, text: str) -> None:
    with os.fdopen(open_common(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
