"""A worker's process: its life signs, what signals do to it, and its end with its supervisor's."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from tuner.errors import TERMINATED
from tuner.files.child import end_with

# What a worker tells its supervisor: life signs, lines through a pipe from the thread that works.
# The lease in the database is renewed by a thread of its own, which lives on when the work hangs.
# This heartbeat stops with the work, and needs no database.


FRESH_PROCESS = 75
"""The exit code of a worker whose device context is lost: its trial is recorded, and another
process can go on."""

STARTING = "starting"
"""What a process is at before anything else: nobody knows how long a machine takes to import."""
WAITING = "waiting"
TRAINING = "training"
IDLE = "idle"
"""Waiting for its worker, which is watched itself."""

SOURCES = WORKER, TRAINER = "worker", "trainer"
"""Whose life sign it is: a worker whose trainings run in a process of their own has two lives."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One life sign: what is begun now, the longest epoch of the trial at work so far, in seconds
    (0: none yet), and whose it is.
    """

    phase: str
    longest_epoch_s: float = 0.0
    source: str = WORKER

    def to_line(self) -> bytes:
        return json.dumps([self.phase, self.longest_epoch_s, self.source]).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Beat:
        """Raises ValueError for anything else than `to_line` makes."""
        match json.loads(line):
            case [str(phase), int() | float() as longest, str(source)] if source in SOURCES:
                return Beat(phase, float(longest), source)
        raise ValueError("no life sign")


@dataclass(slots=True)
class Heartbeat:
    """Writes beats to the file descriptor `pipe`; to nobody where that is None."""

    pipe: int | None = None
    source: str = WORKER
    _longest_epoch_s: float = 0.0
    _elapsed_s: float = 0.0

    def __post_init__(self) -> None:
        if self.pipe is not None:
            os.set_blocking(self.pipe, False)
            os.set_inheritable(self.pipe, False)

    def phase(self, name: str) -> None:
        """Something is begun that is no epoch, or goes on and is well."""
        self._beat(Beat(name, source=self.source))

    def new_trial(self) -> None:
        self._longest_epoch_s = self._elapsed_s = 0.0
        self.phase("starting a trial")

    def clock_at(self, elapsed_s: float) -> None:
        """A training goes on from where its clock stood at so many seconds."""
        self._elapsed_s = elapsed_s

    def epoch_ended(self, elapsed_s: float) -> None:
        """An epoch is over, and the training's clock stands at so many seconds; where a run begins
        anew, so does it.
        """
        epoch_s = elapsed_s - (self._elapsed_s if elapsed_s >= self._elapsed_s else 0.0)
        self._elapsed_s = elapsed_s
        self.training(epoch_s)

    def training(self, epoch_s: float) -> None:
        """An epoch is over, which took so many seconds, and the next begins."""
        self._longest_epoch_s = max(self._longest_epoch_s, epoch_s)
        self._beat(Beat(TRAINING, self._longest_epoch_s, self.source))

    def _beat(self, beat: Beat) -> None:
        if self.pipe is None:
            return
        try:
            os.write(self.pipe, beat.to_line())
        except BlockingIOError:
            pass  # the supervisor has not read for a while: it has enough signs of life
        except OSError:
            self.pipe = None  # nobody reads any more


# The flag that a signal sets, and that a worker reads between two training steps.


LOOK_S = 0.05
"""How often who waits for it looks."""


class StopFlag:
    """Set by a signal handler; read between two training steps.

    It has no lock: a handler runs in the middle of whatever its thread does. If that held the lock
    of a `threading.Event` just then, setting the event would wait for it for ever.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Whether it was set within so many seconds."""
        deadline = time.monotonic() + seconds
        while not self._is_set and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
        return self._is_set


SAME_SIGNAL_S = 1.0
ORPHAN_LOOK_S = 0.25
ORPHAN_GRACE_S = 3.25
"""For a worker without its supervisor to hand back what it runs."""

ORPHAN_WILL_S = 1.0
"""For handing back in its stead."""


def stop_on_signals(stop: StopFlag, *, supervised: bool = False) -> list[int]:
    """First SIGTERM or SIGINT: stop after this step and hand back.
    A second one ends the process at once.

    What follows within `SAME_SIGNAL_S` is the first one still. To a worker with a supervisor all
    are one: a cluster tells each process of a job, a supervisor passes it on, and the kernel says
    that it has died, once for each of its threads. Who is in a hurry kills that worker. Returns the
    signals received, in time to come.
    """
    received: list[int] = []
    first_at = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        del frame
        if not received:
            first_at = time.monotonic()
            received.append(number)
            stop.set()
        elif not supervised and time.monotonic() - first_at > SAME_SIGNAL_S:
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    return received


def end_on_signals() -> None:
    """Nothing is claimed any more: from here on a signal ends this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def end_at_once(code: int) -> NoReturn:
    """Everything is stored and closed;
    taking torch apart would only keep the supervisor waiting.
    """
    logging.shutdown()
    os._exit(code)


class Orphan:
    """Ends this process with its supervisor, however that dies: no worker is left behind.

    The kernel is asked for SIGTERM then, upon which the trial is handed back. A worker that cannot
    do so soon, in a long step or waiting for a database, is ended by a thread, which first tries to
    hand back in its stead: `will`. One that was stopped goes on, since it has no session of its own
    (see `Supervisor`): SIGHUP, which the kernel sends it on that occasion, must not end it before.
    """

    def __init__(self, parent: int) -> None:
        self.will: Callable[[], None] = lambda: None
        if sys.platform != "linux":
            return
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        end_with(parent, signal.SIGTERM)
        threading.Thread(target=self._watch, args=(parent,), name="parent", daemon=True).start()

    def _watch(self, parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_LOOK_S)
        time.sleep(ORPHAN_GRACE_S)
        last = threading.Thread(target=self.will, name="will", daemon=True)
        last.start()
        last.join(ORPHAN_WILL_S)
        os._exit(TERMINATED)


# A device's context that is lost: only a fresh process can go on, and not for ever.


MAX_RESTARTS = 5
"""A device whose workers end this often without a result of theirs in between gets no other one,
however well those on other devices do. Where a launch waits twice as long each time, that is a
quarter of a minute: longer than a database that restarts keeps every trial from finishing."""


class ContextLostError(Exception):
    """The device's context is unusable after a failure: only a fresh process can go on.

    `results` is how many this process had without the failure itself: signs that its device works.
    """

    def __init__(self, reason: str, *, results: int = 0) -> None:
        super().__init__(reason)
        self.results = results

    def failures(self, before: int) -> int:
        """How many processes in a row lost the device and had
        no result beside that, with this one and `before`.
        """
        return 1 if self.results else before + 1
