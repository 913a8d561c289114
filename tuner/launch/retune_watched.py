"""What the operation of a retune's stage tells, and where the stage stands meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tuner.launch.progress import Notes
from tuner.launch.retune_request import RetuneProgress
from tuner.launch.stages import Stage, Standing
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy

LOOK_S, LOOK_SHARE = 2.0, 0.05
"""Looking costs CPU time, which on a CPU run is the workers' own: not more often than this, and not
for more of the time."""
NOTHING_TO_DO = "nothing to do: "


@dataclass(slots=True)
class Watched:
    """As the progress of a launch or of a verification."""

    notes: Notes
    progress: RetuneProgress
    stage: Stage
    standing: Callable[[Stage, Sequence[OpenStudy]], Standing]

    def note(self, line: str) -> None:
        if not line.startswith(NOTHING_TO_DO):  # a stage that is over says so itself
            self.notes.note(line)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        next_look = 0.0

        def look() -> None:
            nonlocal next_look
            tick()
            began = time.monotonic()
            if began >= next_look:
                with suppress(*DATABASE_FAILURES):  # what works goes on without it
                    self.progress.stage(self.standing(self.stage, studies))
                now = time.monotonic()
                next_look = now + max(LOOK_S, (now - began) / LOOK_SHARE)

        with self.progress.watching(studies) as tick:
            look()
            yield look
