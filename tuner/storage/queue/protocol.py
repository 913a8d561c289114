"""What every queue of work offers to those who do the work, and to those who watch over them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tuner.storage.records import Counts, TrialResult

Held = TypeVar("Held")


class Shared(Protocol):
    """Work that several workers share, as far as one cares who watches over them."""

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back what overdue workers, or this dead one, held. Returns how many."""

    def counts(self) -> Counts:
        """What is planned, running and finished."""

    def results(self, worker: str) -> int:
        """How many results of `worker` count."""


class Queue(Shared, Protocol[Held]):
    """Pieces of work, each claimed by one worker at a time, each with one result that counts.

    `Held` is what a claim gives: the piece of work, with the token under which it is held.
    """

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a claim should renew it."""

    def claim(self, worker: str, *, token: str | None = None) -> Held | None:
        """A piece of work, or None while there is none to give. The same `token` claims once."""

    def renew(self, held: Held, /) -> bool:
        """Extend the lease; False when it was lost: the result would not count."""

    def finish(self, held: Held, result: TrialResult, /) -> bool:
        """Record the result once; False when the lease was lost:
        then it is kept, and not counted.
        """

    def give_back(self, held: Held, /) -> None:
        """Return the work undone: the next claim gets it, and nothing is held against it."""

    def settle(self) -> None:
        """Tell whoever has to know of them the results that were recorded and not told yet."""
