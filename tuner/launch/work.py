"""What workers are started for, as far as a supervisor cares."""

from __future__ import annotations

from typing import Protocol

from tuner.storage import Counts


class Queue(Protocol):
    """What workers claim from."""

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back what overdue workers, or this dead one, held."""

    def counts(self) -> Counts:
        """What is planned, running and finished."""

    def results(self, worker: str) -> int:
        """How many results are this worker's."""


class SignedIn(Protocol):
    """Where workers sign in."""

    def leave(self, worker: str) -> None:
        """Sign a worker out."""


class Work(Protocol):
    """A study with its trials, or the runs that verify some studies."""

    @property
    def name(self) -> str:
        """As `tuner worker --study` takes it."""

    @property
    def ledger(self) -> Queue:
        """What is left to do."""

    @property
    def roster(self) -> SignedIn:
        """Who is at it."""
