"""How often this process was stopped and went on: its clock went on all the while."""

from __future__ import annotations

import functools
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class Stops:
    """Counted since `count` was called."""

    so_far: int = 0

    def count(self) -> None:
        """Count from now on. To be called in the main thread; elsewhere nothing is counted."""
        try:
            signal.signal(signal.SIGCONT, self._continued)
        except ValueError:
            return

    def _continued(self, number: int, frame: object) -> None:
        del number, frame
        self.so_far += 1


@functools.cache
def stops() -> Stops:
    """Those of this process."""
    return Stops()
