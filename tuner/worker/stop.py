"""The flag that a signal sets, and that a worker reads between two training steps."""

from __future__ import annotations

import threading


class StopFlag:
    """Set by a signal handler; read between two training steps."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)
