"""A worker's process: what signals do to it, and its end with that of its supervisor."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tuner.errors import TERMINATED, TunerError
from tuner.files.child import end_with

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.devices.assignment import GpuAssignment


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

MARK = "--failures"
"""The first of the words that are added to a fresh process's command line; all after it are
replaced by the next."""


class ContextLostError(Exception):
    """The device's context is unusable after a failure: only a fresh process can go on.

    `results` is how many this process had that count, without the failure itself: signs that its
    device works.
    """

    def __init__(self, reason: str, *, results: int = 0) -> None:
        super().__init__(reason)
        self.results = results

    def failures(self, before: int) -> int:
        """How many processes in a row lost the device and had
        no result beside that, with this one and `before`.
        """
        return 1 if self.results else before + 1


def go_on_afresh(
    lost: ContextLostError,
    device: Gpu | CpuCores,
    assignment: GpuAssignment | None,
    *,
    failures: int,
) -> NoReturn:
    """Become the same command in a fresh process, on the same GPU.

    A device on which so many processes in a row had no result, but that they lost it, is judged as
    a supervisor judges it: each would take another trial, and fail it. `failures` is how many there
    were before this process.

    Raises:
        TunerError: the device is given up.
    """
    failures = lost.failures(failures)
    if failures >= MAX_RESTARTS:
        raise TunerError(
            f"{device.label} is left alone: {failures} processes in a row lost it with their first "
            f"trial, the last to '{lost}'; check the device, and start the worker again"
        )
    more = [MARK, str(failures)]
    if assignment is not None:  # it keeps its GPU, the only one that it sees by now
        more += ["--gpu", "0"]
        if assignment.descriptor is not None:
            assignment.keep()
            more += ["--gpu-assignment", str(assignment.descriptor)]
    given = sys.argv[1:]  # without what was added by this very command, if it was
    words = given[: given.index(MARK)] if MARK in given else given
    sys.stdout.flush()
    sys.stderr.flush()
    program = [sys.executable, "-m", "tuner", *words, *more]
    os.execv(sys.executable, program)  # noqa: S606 - this very command again
