"""How long the finished claims of a study had their devices, each read once: it never changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, select

from tuner.spec.policy import SearchPolicy
from tuner.storage.optuna.damage import damage_named
from tuner.storage.queue.budget import search_s
from tuner.storage.queue.device_time import device_seconds
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims


class SpentTime:
    """Of the claims that `mine` selects."""

    def __init__(self, mine: ColumnElement[bool], engine: Engine, study_id: int, name: str) -> None:
        """`name` is the study's."""
        self._engine, self._study_id, self._name = engine, study_id, name
        self.last_hours: GpuHours | None = None
        """The limit of device hours that was last asked for."""
        self._finished = mine & (claims.c.state == "finished")
        self._took: dict[int, tuple[int, float]] = {}

    def is_up(self, connection: Connection, seen: Row[Any]) -> bool:
        """Whether the search has had its time."""
        may_take = search_s(seen, self._name)
        return may_take is not None and self.seconds(connection) >= may_take

    def is_unpaid(self, connection: Connection, seen: Row[Any]) -> bool:
        """Whether its studies have had their device hours."""
        hours = self.hours(seen.policy)
        return hours is not None and hours.is_over(connection)

    def pays(self, connection: Connection, seen: Row[Any], worker: str) -> bool:
        """Whether there are device hours for what a worker would claim."""
        hours = self.hours(seen.policy)
        return hours is None or hours.may_claim(connection, worker)

    def hours(self, policy: str | None) -> GpuHours | None:
        """The limit that a stored policy names, with what is known of it; None where none does."""
        found = GpuHours.of(self._engine, SearchPolicy.from_json(policy, self._name), self._name)
        known = self.last_hours
        if found is None or known is None or found.limit != known.limit:
            self.last_hours = found
        return self.last_hours

    def seconds(self, connection: Connection, beside: Mapping[int, float] | None = None) -> float:
        """Of all of them. `beside` are seconds, by trial number, of trials that may not be stored
        yet: each counts once.
        """
        c = claims.c
        there = set(connection.execute(select(c.claim_id).where(self._finished)).scalars())
        if new := sorted(there - self._took.keys()):
            query = select(c.claim_id, c.trial_number, c.result).where(self._finished)
            for row in connection.execute(query.where(c.claim_id.in_(new))):
                with damage_named(self._engine, self._study_id):
                    result = TrialResult.from_json(row.result)
                self._took[row.claim_id] = row.trial_number, device_seconds(result.recorded)
        known = [self._took[claim] for claim in there]
        stored = {number for number, _ in known}
        more = (s for number, s in (beside or {}).items() if number not in stored)
        return sum(seconds for _, seconds in known) + sum(more)
