"""When an epoch is written: every second, less often where the database is slow, and ever less
often while it is away.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

REPORT_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries of a database that is away:
each may take seconds, in which nothing is trained."""
MOST_OF_TIME = 0.05
"""A worker spends this share of its time on such writes at most: where hundreds of workers share a
database, that leaves it time for claims and results."""


@dataclass(slots=True)
class ReportInterval:
    """Says when the next write is due, by how the last ones went."""

    _next: float = 0.0
    _failures: int = 0

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def wrote(self, *, well: bool, took_s: float = 0.0) -> None:
        self._failures = 0 if well else self._failures + 1
        pause_s = max(REPORT_S * 4**self._failures, took_s / MOST_OF_TIME)
        self._next = time.monotonic() + min(pause_s, LONGEST_PAUSE_S)
