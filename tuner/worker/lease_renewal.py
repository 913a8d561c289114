"""The lease on a piece of work, kept alive by a thread while the work is done."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, TypeVar

from tuner.config import StopReason
from tuner.storage.queue.protocol import Queue
from tuner.storage.queue.roster import Roster
from tuner.storage.retry import DATABASE_FAILURES
from tuner.worker.stop import StopFlag

Held = TypeVar("Held")
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class KeptLease:
    """A lease that is renewed every `heartbeat_s` seconds as long as the context lasts: a trial's
    or a run's.

    `renew` says whether the lease still stands, `report` that the worker lives, and `reap` takes
    back what others lost: no supervisor need be there, and a training may take hours. `beside` is
    what else is to be kept up to date.
    """

    heartbeat_s: float
    renew: Callable[[], bool]
    report: Callable[[], None]
    reap: Callable[[], object]
    stop: StopFlag
    beside: Callable[[], None] = lambda: None
    _lost: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    def should_stop(self) -> StopReason | None:
        """Whether a signal came, or somebody else has the work by now:
        read between two training steps.
        """
        return StopReason.INTERRUPTED if self.stop.is_set() or self._lost.is_set() else None

    def _keep(self) -> None:
        while not self._ended.wait(self.heartbeat_s):
            try:
                if not self.renew():
                    self._lost.set()
                    return
                self.report()
                self.beside()
                self.reap()
            except DATABASE_FAILURES:
                _log.warning("the database is away; the lease could not be renewed")
            except Exception:  # noqa: BLE001 - its end would cost the work its lease, and nobody would hear of it
                _log.exception("the thread that keeps the lease goes on after a failure")

    def __enter__(self) -> Self:
        threading.Thread(target=self._keep, name="lease", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()


def lease_on(
    held: Held,
    queue: Queue[Held],
    roster: Roster,
    worker: str,
    stop: StopFlag,
    *,
    beside: Callable[[], None] = lambda: None,
) -> KeptLease:
    """The lease of `worker` on what it holds of `queue`, with its life reported to `roster`."""
    return KeptLease(
        heartbeat_s=queue.heartbeat_s,
        renew=functools.partial(queue.renew, held),
        report=functools.partial(roster.report, worker),
        reap=queue.reap,
        stop=stop,
        beside=beside,
    )
