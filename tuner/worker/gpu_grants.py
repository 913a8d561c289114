"""What a worker's trainings may take of the device hours that their studies share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.verifications import Verifications
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.study.open import OpenStudy

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Granted:
    """Of one claim."""

    grants: GpuGrants
    token: str
    hours: GpuHours | None = None
    seconds: float | None = None
    """That its training may take; None: as many as it needs."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waits: bool = False
    _noted: bool = False
    """That it waits."""

    def ask(self, opened: OpenStudy, policy: SearchPolicy, beside_s: float = 0.0) -> bool:
        """Whether its training may begin; its device has waited for `beside_s`. Without the
        database nobody knows: then it must not.
        """
        self.hours = self.grants.of(opened, policy)
        if self.hours is None:
            return True
        try:
            self.seconds = self.hours.ask(self.token, self.grants.worker, beside_s)
        except DATABASE_FAILURES as error:
            _log.warning("the database is away (%s); nothing begins without it", cause_of(error))
            return False
        return self.seconds is not None

    def waits(self, begins: bool) -> None:
        """Its training begins to wait for the device, or waits no more."""
        with self._lock:
            self._waits = begins
            if self._noted and not begins:
                try:
                    self._note()
                except DATABASE_FAILURES as error:  # `keep` says it later
                    _log.warning("the database is away (%s)", cause_of(error))

    def keep(self) -> None:
        """Note that it waits, or that it does so no more: were the worker killed, only the time in
        which it had the device would count. From another thread, now and then: most waits are over
        before it comes to that.

        Raises:
            DBAPIError: the database is away.
        """
        with self._lock:
            if self._noted != self._waits:
                self._note()

    def _note(self) -> None:
        if self.hours is not None:
            self.hours.waits(self.token, begins=self._waits)
        self._noted = self._waits

    def took(self, seconds: float) -> None:
        """Its training has ended. Where the database does not hear of it, all of the grant counts
        until the result is stored.
        """
        if self.hours is None:
            return
        try:
            self.hours.took(self.token, seconds)
        except DATABASE_FAILURES as error:
            _log.warning("the database is away (%s)", cause_of(error))


@dataclass(slots=True)
class GpuGrants:
    """Of one worker; what each limit's studies have spent is read once."""

    worker: str
    _known: dict[tuple[tuple[str, ...], float], GpuHours] = field(default_factory=dict)
    _queues: dict[tuple[int, ...], Sequence[Ledger | Verifications]] = field(default_factory=dict)
    """Of all studies that share a limit, by their numbers."""

    def of(self, opened: OpenStudy, policy: SearchPolicy) -> GpuHours | None:
        found = GpuHours.of(opened.database.engine, policy, opened.name)
        return None if found is None else self._known.setdefault(found.limit, found)

    def take_back(self, database: Database, limits: Iterable[GpuHours | None]) -> None:
        """Take back what dead workers held of all studies that share these limits. Where nobody
        else works at them, their grants would stay open, and everybody would wait for them.

        To be called often while there is nothing to claim (`Leases.confirmed`).

        Raises:
            DBAPIError, StorageInternalError: the database is away.
        """
        for hours in {each.names: each for each in limits if each is not None}.values():
            ids = hours.study_ids()
            if ids not in self._queues:
                ledgers = [Ledger(database, study_id) for study_id in ids]
                self._queues[ids] = [*ledgers, Verifications(database.engine, ids)]
            for queue in self._queues[ids]:
                queue.reap()

    def for_claim(self, token: str) -> Granted:
        return Granted(self, token)
