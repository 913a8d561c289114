"""Who holds a device: a note beside its lock, for whoever waits for it, and what to do about a
holder that is stopped.

The kernel knows who holds a lock, but tells only processes of the same container. The note is a
courtesy: nothing is decided by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psutil

from tuner.devices.common_files import read_common, write_common
from tuner.devices.neighbours import birth

NOTE_BYTES = 4096
_NUMBERS = range(1, 2**31)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process. `born` tells it from a later one of the same number,
    and from one in another container.
    """

    pid: int
    host: str
    born: str

    @staticmethod
    def this_process() -> Holder:
        return Holder(os.getpid(), platform.node(), birth(os.getpid()))

    @property
    def is_stopped(self) -> bool:
        """Whether it is seen from here, and was stopped (SIGSTOP): then nothing but SIGCONT or
        SIGKILL ends that.
        """
        process = self._process()
        try:
            return process is not None and process.status() in (
                psutil.STATUS_STOPPED,
                psutil.STATUS_TRACING_STOP,
            )
        except psutil.Error:
            return False

    def __str__(self) -> str:
        process = self._process()
        if process is None:
            elsewhere = "in another container or on another machine"
            return f"process {self.pid} on {self.host} has it, {elsewhere}"
        try:
            who = f"process {self.pid} of {process.username()}"
        except (psutil.Error, KeyError):
            who = f"process {self.pid}"
        if self.is_stopped:
            return (
                f"{who} has it, and is stopped: "
                f"kill -CONT {self.pid} lets it go on, kill -KILL {self.pid} ends it"
            )
        return f"{who} has it"

    def _process(self) -> psutil.Process | None:
        try:
            return psutil.Process(self.pid) if birth(self.pid) == self.born else None
        except (psutil.Error, ValueError):
            return None


@contextmanager
def noted(folder: int, name: str) -> Iterator[None]:
    """While inside, the note `name` in `folder` says
    that this process holds what it lies beside.
    """
    with contextlib.suppress(OSError, psutil.Error):
        write_common(folder, name, json.dumps(asdict(Holder.this_process())).encode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            write_common(folder, name, b"")


def holder_of(folder: int, name: str) -> Holder | None:
    """Whom the note `name` in `folder` names;
    None where there is none, or none that can be read.
    """
    try:
        content = json.loads(read_common(folder, name, at_most=NOTE_BYTES))
        holder = Holder(int(content["pid"]), str(content["host"]), str(content["born"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    # Anybody may have written it, and it is shown on terminals.
    return holder if holder.pid in _NUMBERS and holder.host.isprintable() else None
