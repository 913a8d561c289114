"""What a worker's trainings may take of the device hours that their studies share."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.gpu_hours import GpuHours
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

    def of(self, opened: OpenStudy, policy: SearchPolicy) -> GpuHours | None:
        found = GpuHours.of(opened.database.engine, policy, opened.name)
        return None if found is None else self._known.setdefault(found.limit, found)

    def for_claim(self, token: str) -> Granted:
        return Granted(self, token)
