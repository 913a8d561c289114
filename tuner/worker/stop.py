"""The flag that a signal sets, and that a worker reads between two training steps."""

from __future__ import annotations

import time

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
