"""What an engine does for a launch: it places workers, says how they are, and ends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tuner.launch.engines.worker_command import WorkerCommand
from tuner.storage.url import DatabaseUrl


class PlaceState(StrEnum):
    """What a worker that was asked for is at."""

    WAITING = "waiting"
    """The engine has not begun it: it waits for a device, or for its turn."""
    WORKING = "working"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One worker that was asked for, as the engine last knew it."""

    name: str
    """As the engine calls it."""
    state: PlaceState
    why: str = ""
    """For what it waits, or the last line that it said."""
    code: int | None = None
    """How it ended; None before that, and where the engine does not say."""

    @property
    def failed(self) -> bool:
        """Whether it ended before its work was done."""
        return self.state is PlaceState.ENDED and self.code != 0


class Placement(Protocol):
    """Workers that were placed, as long as its context lasts."""

    def look(self) -> Sequence[Place]:
        """All of them. It may take a while, and be some seconds old."""

    def stop(self) -> None:
        """Ask all to hand back what they run, and to end."""

    def again(self) -> None:
        """Begin anew those that have ended."""


class Engine(Protocol):
    """Places workers."""

    @property
    def label(self) -> str:
        """What it is, for people: `Ray at 10.0.0.1:6379`."""

    @property
    def notice(self) -> str:
        """What to say where the choice was ours; empty where there is nothing."""

    @property
    def workers(self) -> int:
        """How many it places."""

    @property
    def cores(self) -> int | None:
        """Cores of each; None: each has a GPU."""

    def check(self, address: DatabaseUrl) -> None:
        """Before anything is written.

        Raises:
            UsageError: what was asked for cannot be placed there, or cannot reach the database.
            TunerError: it cannot be reached.
        """

    def place(self, command: WorkerCommand) -> AbstractContextManager[Placement]:
        """Have so many workers work. At the context's end none of them is left.

        Raises:
            TunerError: it refuses.
        """

    def in_words(self, command: WorkerCommand) -> str | Mapping[str, str]:
        """What it would be told, to be given to it by hand: a script, or values to fill in.

        Raises:
            UsageError: it is told nothing that could be written down.
        """
