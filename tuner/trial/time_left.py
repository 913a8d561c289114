"""What is left of the time that all runs of a job may take together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class TimeLeft:
    """Of `may_take_s` seconds from now on; None: no end. Waits for a device do not count."""

    may_take_s: float | None
    waited_s: float = 0.0
    _began: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float | None:
        if self.may_take_s is None:
            return None
        return self.may_take_s - (time.perf_counter() - self._began - self.waited_s)

    @property
    def is_over(self) -> bool:
        left = self.seconds
        return left is not None and left <= 0
