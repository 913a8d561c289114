"""Kills workers that hang, judged by their heartbeat: in a thread of its own, without the database.

A worker that trains beats after every epoch, and is given ten times the trial's longest epoch so
far. Before a trial's first epoch, and in a database call, it may be at one thing for long; while it
waits, it beats every second. A worker whose trainings run in a process of their own has a second
life, judged alike, and is killed with it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from tuner.devices.lock import WAITING_FOR_DEVICE
from tuner.worker.heartbeat import IDLE, STARTING, TRAINER, TRAINING, WAITING, WORKER, Beat

FIRST_LIMIT_S = 1800.0
"""Without a life sign while nothing tells how long things take:
starting, setting up, compiling, a first epoch."""
FLOOR_S = 60.0
"""However short the epochs are: a machine may stall."""
EPOCHS = 10.0
"""Times the trial's longest epoch."""
LOOK_S = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """A life sign, and when it came."""

    beat: Beat = field(default_factory=lambda: Beat(STARTING))
    at: float = field(default_factory=lambda: time.monotonic())  # noqa: PLW0108 - tests stop it


@dataclass(slots=True)
class WatchedProcess:
    """A worker process and its last life signs."""

    label: str
    process: subprocess.Popen[bytes]
    pipe: int
    lives: dict[str, Heard] = field(default_factory=lambda: {WORKER: Heard()})
    """The last sign of each life that has given one; the worker's from the start."""
    killed: bool = False
    _rest: bytes = b""

    @property
    def beat(self) -> Beat:
        """What it is at: its trainer, where it has one."""
        return self.lives.get(TRAINER, self.lives[WORKER]).beat

    def listen(self) -> None:
        """Take in what came through the pipe."""
        came = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.pipe, 65536):
                came += chunk
        if not came:
            return
        *lines, self._rest = (self._rest + came).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                beat = Beat.from_line(line)
                self.lives[beat.source] = Heard(beat)


@dataclass(slots=True)
class Watchdog:
    """Looks at all workers twice a second, as long as its context lasts.

    `limit_s`, where given, takes the place of both fixed limits once a worker has started; epochs
    that take longer still count tenfold.
    """

    limit_s: float | None = None
    look_s: float = LOOK_S
    _watched: list[WatchedProcess] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self, label: str, process: subprocess.Popen[bytes], pipe: int) -> WatchedProcess:
        """From now on. `pipe`: the reading end of the worker's heartbeat;
        it is closed with the watch.
        """
        os.set_blocking(pipe, False)
        watched = WatchedProcess(label, process, pipe)
        with self._lock:
            self._watched.append(watched)
        return watched

    def forget(self, watched: WatchedProcess) -> None:
        """The process has ended."""
        with self._lock:
            self._watched.remove(watched)
            os.close(watched.pipe)

    def limit_of(self, beat: Beat) -> float:
        """Seconds that may pass after this life sign."""
        if beat.phase == IDLE:
            return math.inf
        if beat.phase == STARTING:  # nobody knows how long a machine takes to import everything
            return FIRST_LIMIT_S
        first, floor = (
            (FIRST_LIMIT_S, FLOOR_S) if self.limit_s is None else (self.limit_s, self.limit_s)
        )
        if beat.phase == TRAINING:
            return max(floor, EPOCHS * beat.longest_epoch_s)
        return floor if beat.phase in (WAITING, WAITING_FOR_DEVICE) else first

    def look(self) -> None:
        """Kill whoever has been silent for too long."""
        with self._lock:
            for each in self._watched:
                each.listen()
                for heard in each.lives.values():
                    self._judge(each, heard)

    def _judge(self, each: WatchedProcess, heard: Heard) -> None:
        silent_s, limit_s = time.monotonic() - heard.at, self.limit_of(heard.beat)
        if silent_s <= limit_s or each.killed or each.process.poll() is not None:
            return
        each.killed = True
        _log.error(
            "the %s on %s hangs: no life sign for %.0f s (limit %.0f s), last at: %s; it is killed",
            heard.beat.source,
            each.label,
            silent_s,
            limit_s,
            heard.beat.phase,
        )
        kill(each.process)

    def _run(self) -> None:
        while not self._over.wait(self.look_s):
            self.look()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()
        for each in list(self._watched):
            self.forget(each)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a worker and what it started (compilers, say): it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
