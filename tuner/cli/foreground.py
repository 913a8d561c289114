"""A launch in the foreground of a terminal: what it says, how it looks, and what stops it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import FrameType

from tuner.cli import output
from tuner.cli.sigterm import PASSED_ON_S
from tuner.errors import INTERRUPTED, TERMINATED
from tuner.launch import Outcome, StopRequests
from tuner.report.terminal.live import Live
from tuner.study.open import OpenStudy

EXIT_CODES = {Outcome.INTERRUPTED: INTERRUPTED, Outcome.TERMINATED: TERMINATED}
"""Other ends are good ones."""


@dataclass(frozen=True, slots=True)
class Foreground:
    """Notes go to stderr, `view` shows the studies, and signals end the work cleanly."""

    view: Callable[[Sequence[OpenStudy]], AbstractContextManager[Live]]
    stop: StopRequests = field(default_factory=StopRequests)

    def note(self, line: str) -> None:
        output.note(line)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        with self.view(studies) as view, stopped_by_signals(self.stop):
            yield view.refresh


@contextmanager
def stopped_by_signals(stop: StopRequests) -> Iterator[None]:
    """SIGINT and SIGTERM are requests, as long as the context lasts.

    A SIGTERM that follows the first request within `PASSED_ON_S` is that one still: who ends a job
    on a cluster, or a container, tells each of its processes, and those between pass it on.
    """
    heard: list[tuple[float, int]] = []

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        this = (time.monotonic(), number)
        # Another signal may come in the middle of this: it is one step that says who was first.
        heard.append(this)
        first = heard[0]
        if this is not first and number == signal.SIGTERM and this[0] < first[0] + PASSED_ON_S:
            return
        stop.ask(Outcome.INTERRUPTED if number == signal.SIGINT else Outcome.TERMINATED)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
