"""A worker's process: what signals do to it, and its end with that of its supervisor."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from tuner.errors import TERMINATED
from tuner.worker.stop import StopFlag

PR_SET_PDEATHSIG = 1
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


def end_with(parent: int, number: signal.Signals) -> None:
    """Have the kernel, where it is Linux, send this process a signal once its parent has died.

    The parent is the thread that started it: the process may live on.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(TERMINATED)


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
