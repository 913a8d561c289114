"""What runs on a Ray cluster: an actor with one worker below it, which ends with the actor.

Ray decides where the actor is, and begins it anew elsewhere when it is lost. It knows nothing of
trials, and gets no code: the node has tuner installed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from tuner.errors import INTERRUPTED, TERMINATED, UsageError
from tuner.files.environment import STORAGE_VARIABLE
from tuner.launch.child import last_line
from tuner.version import __version__
from tuner.worker.restart import MAX_RESTARTS

LONG_S = 10.0
"""Whatever ends a worker that lived so long did not come with it."""


@dataclass(frozen=True, slots=True)
class PlacedProcess:
    """How the worker of an actor is."""

    host: str
    pid: int
    code: int | None
    """Its exit code, once it has ended."""
    last_words: str


class WorkerPlace:
    """One worker, as long as the actor lives."""

    def __init__(self, words: Sequence[str], storage: str, folder: str, version: str) -> None:
        """Begin the worker.

        Args:
            words: its command line, from `tuner` on.
            storage: the database's address, with its password.
            folder: where it works, if this node has such a folder.
            version: of the tuner that asks.
        """
        self._words = words
        self._environment = {**os.environ, STORAGE_VARIABLE: storage}
        self._folder = _own_folder() if _logs_of(Path(folder)) is None else Path(folder)
        self._refusal = ""
        if version != __version__:
            self._refusal = (
                f"{platform.node()} has tuner {__version__}, the launch is of tuner {version}; "
                "install the same on all nodes"
            )
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._kills = 0
        """In a row, each soon after it had begun."""
        self._stopped = False
        self.begin()

    def begin(self) -> None:
        """Have it work, where it does not."""
        if self._refusal or (self._process is not None and self._process.poll() is None):
            return
        logs = _logs_of(self._folder)
        if logs is None:
            self._refusal = f"{platform.node()}: {self._folder} cannot be written to"
            return
        self._log = logs / f"placed-{platform.node()}-{os.getpid()}.log"
        self._began = time.monotonic()
        command = [sys.executable, "-m", "tuner", *self._words[1:]]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--supervised-by", str(os.getpid())],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def look(self) -> PlacedProcess:
        """How the worker is. One that somebody killed is begun again first: it has not failed."""
        if self._process is None:
            return PlacedProcess(platform.node(), 0, UsageError.exit_code, self._refusal)
        code = self._process.poll()
        if code is not None and self._was_killed(code):
            self.begin()
            code = None
        words = last_line(self._log) if code is not None else ""
        return PlacedProcess(platform.node(), self._process.pid, code, words)

    def stop(self) -> None:
        """Have the worker hand back what it runs."""
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def _was_killed(self, code: int) -> bool:
        """Whether it was, and not so often that it must be the worker's own doing."""
        if self._stopped or not (code < 0 or code in (INTERRUPTED, TERMINATED)):
            return False
        lived_s = time.monotonic() - self._began
        self._kills = self._kills + 1 if lived_s < LONG_S else 1
        return self._kills <= MAX_RESTARTS


def _logs_of(folder: Path) -> Path | None:
    """Where a worker's words go that works in this folder, which is to be there; None where
    nothing can be written.
    """
    logs = folder / "storage" / "logs"
    if not folder.is_dir():
        return None
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return logs if os.access(logs, os.W_OK) else None


def _own_folder() -> Path:
    """Of this user on this node: what a worker left there is found by the next one."""
    folder = platformdirs.user_state_path("tuner")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
