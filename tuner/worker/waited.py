"""How long a piece of work has waited for its device, which somebody else had."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Waited:
    """Told by whoever waits (`TrialJob.on_wait`), and tells it on. Any thread may ask."""

    tell: Callable[[bool], None] = lambda _waits: None
    is_known: bool = False
    """Somebody has said whether it waits."""
    _before_s: float = 0.0
    _since: float | None = None

    def told(self, waits: bool) -> None:
        """A wait begins, or is over."""
        now = time.perf_counter()
        if self._since is not None:
            self._before_s += now - self._since
        self._since = now if waits else None
        self.is_known = True
        self.tell(waits)

    @property
    def seconds(self) -> float:
        """With those of a wait that goes on."""
        since = self._since
        return self._before_s + (0.0 if since is None else time.perf_counter() - since)
