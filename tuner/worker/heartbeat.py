"""What a worker tells its supervisor: life signs, lines through a pipe from the thread that works,
and its end.

The lease in the database is renewed by a thread of its own, which lives on when the work hangs.
This heartbeat stops with the work, and needs no database.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

FRESH_PROCESS = 75
"""The exit code of a worker whose device context is lost: its trial is recorded, and another
process can go on."""

STARTING = "starting"
"""What a process is at before anything else: nobody knows how long a machine takes to import."""
WAITING = "waiting"
TRAINING = "training"
IDLE = "idle"
"""Waiting for its worker, which is watched itself."""

SOURCES = WORKER, TRAINER = "worker", "trainer"
"""Whose life sign it is: a worker whose trainings run in a process of their own has two lives."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One life sign: what is begun now, the longest epoch of the trial at work so far, in seconds
    (0: none yet), and whose it is.
    """

    phase: str
    longest_epoch_s: float = 0.0
    source: str = WORKER

    def to_line(self) -> bytes:
        return json.dumps([self.phase, self.longest_epoch_s, self.source]).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> Beat:
        """Raises ValueError for anything else than `to_line` makes."""
        match json.loads(line):
            case [str(phase), int() | float() as longest, str(source)] if source in SOURCES:
                return Beat(phase, float(longest), source)
        raise ValueError("no life sign")


@dataclass(slots=True)
class Heartbeat:
    """Writes beats to the file descriptor `pipe`; to nobody where that is None."""

    pipe: int | None = None
    source: str = WORKER
    _longest_epoch_s: float = 0.0
    _elapsed_s: float = 0.0

    def __post_init__(self) -> None:
        if self.pipe is not None:
            os.set_blocking(self.pipe, False)
            os.set_inheritable(self.pipe, False)

    def phase(self, name: str) -> None:
        """Something is begun that is no epoch, or goes on and is well."""
        self._beat(Beat(name, source=self.source))

    def new_trial(self) -> None:
        self._longest_epoch_s = self._elapsed_s = 0.0
        self.phase("starting a trial")

    def clock_at(self, elapsed_s: float) -> None:
        """A training goes on from where its clock stood at so many seconds."""
        self._elapsed_s = elapsed_s

    def epoch_ended(self, elapsed_s: float) -> None:
        """An epoch is over, and the training's clock stands at so many seconds; where a run begins
        anew, so does it.
        """
        epoch_s = elapsed_s - (self._elapsed_s if elapsed_s >= self._elapsed_s else 0.0)
        self._elapsed_s = elapsed_s
        self.training(epoch_s)

    def training(self, epoch_s: float) -> None:
        """An epoch is over, which took so many seconds, and the next begins."""
        self._longest_epoch_s = max(self._longest_epoch_s, epoch_s)
        self._beat(Beat(TRAINING, self._longest_epoch_s, self.source))

    def _beat(self, beat: Beat) -> None:
        if self.pipe is None:
            return
        try:
            os.write(self.pipe, beat.to_line())
        except BlockingIOError:
            pass  # the supervisor has not read for a while: it has enough signs of life
        except OSError:
            self.pipe = None  # nobody reads any more
