"""When an epoch is written: every second, and ever less often while the database is away."""

from __future__ import annotations

import time
from dataclasses import dataclass

REPORT_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries of a database that is away:
each may take seconds, in which nothing is trained."""


@dataclass(slots=True)
class ReportInterval:
    """Says when the next write is due, by how the last ones went."""

    _next: float = 0.0
    _failures: int = 0

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def wrote(self, *, well: bool) -> None:
        self._failures = 0 if well else self._failures + 1
        self._next = time.monotonic() + min(REPORT_S * 4**self._failures, LONGEST_PAUSE_S)
