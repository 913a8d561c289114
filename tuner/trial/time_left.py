"""What is left of the time that all runs of a job may take together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class TimeLeft:
    """Of `may_take_s` seconds from now on; None: no end. Waits for a device do not count.

    `on_wait` is told True when one begins, and False when it is over.
    """

    may_take_s: float | None = None
    on_wait: Callable[[bool], None] = lambda _waits: None
    _waited_s: float = 0.0
    _waits_since: float | None = None
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For a device that somebody else may have."""
        self._waits_since = time.perf_counter()
        self.on_wait(True)
        try:
            yield
        finally:
            self._waited_s += time.perf_counter() - self._waits_since
            self._waits_since = None
            self.on_wait(False)

    @property
    def seconds(self) -> float | None:
        if self.may_take_s is None:
            return None
        now = time.perf_counter() if self._waits_since is None else self._waits_since
        return self.may_take_s - (now - self._began - self._waited_s)

    @property
    def is_over(self) -> bool:
        left = self.seconds
        return left is not None and left <= 0
