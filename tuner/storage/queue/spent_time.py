"""How long the finished claims of a study had their devices, each read once: it never changes."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, select

from tuner.storage.queue.device_time import device_seconds
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims


class SpentTime:
    """Of the claims that `mine` selects."""

    def __init__(self, mine: ColumnElement[bool]) -> None:
        self._finished = mine & (claims.c.state == "finished")
        self._took: dict[int, tuple[int, float]] = {}

    def seconds(self, connection: Connection, beside: Mapping[int, float] | None = None) -> float:
        """Of all of them. `beside` are seconds, by trial number, of trials that may not be stored
        yet: each counts once.
        """
        c = claims.c
        there = set(connection.execute(select(c.claim_id).where(self._finished)).scalars())
        if new := sorted(there - self._took.keys()):
            query = select(c.claim_id, c.trial_number, c.result).where(self._finished)
            for row in connection.execute(query.where(c.claim_id.in_(new))):
                result = TrialResult.from_json(row.result)
                self._took[row.claim_id] = row.trial_number, device_seconds(result.recorded)
        known = [self._took[claim] for claim in there]
        stored = {number for number, _ in known}
        more = (s for number, s in (beside or {}).items() if number not in stored)
        return sum(seconds for _, seconds in known) + sum(more)
