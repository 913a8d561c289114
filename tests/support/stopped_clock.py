"""A clock to put in the place of the module `time`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StoppedClock:
    """It stands still until a test sets `now`."""

    now: float

    def monotonic(self) -> float:
        return self.now
