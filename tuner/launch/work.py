"""What workers are started for, as far as a supervisor cares."""

from __future__ import annotations

from typing import Protocol

from tuner.storage.queue.leased_queue import Shared


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
    def ledger(self) -> Shared:
        """What is left to do."""

    @property
    def roster(self) -> SignedIn:
        """Who is at it."""
