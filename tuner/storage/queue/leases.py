"""Leases: how long a worker may be silent,
and when what it held is taken back. Of trials and of verification runs.

A lease runs out on the database's clock. One that ran out is taken back by who has watched it stay
so for a while, on its own clock: after an outage, or the sleep of a whole machine, every lease has
run out at once, and living workers are about to renew theirs. For the same reason, what was claimed
before the server's start is left alone for a while after.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, ColumnElement, Engine, select

from tuner.storage.database_clock import database_now, database_started

LEASE_S = 60.0
"""How long a worker may be silent before its work is given to another."""
MAX_ATTEMPTS = 3
"""What lost its worker this many times is set aside as failed: it may be what kills them."""
CONFIRM_SHARE = 0.5
"""A lease that ran out is watched for this share
of a lease before it is taken back, for a sign of life."""
SET_BACK_LEASES = 3.0
"""A lease that has more than this many times its length
to go is none that the present clock gave."""
HEARTBEATS_PER_LEASE = 6
"""A worker renews its lease this often before it would run out."""


class Leases:
    """The leases on rows of a table: those that `running` selects, told apart by their `key`.

    The table has the columns `leased_until` and `claimed_at`. A lease lasts `lease_s` seconds
    (LEASE_S), is watched for `confirm_s` seconds (half a lease) once it ran out, and is left alone
    for `restart_grace_s` seconds (half a lease) after a start of the server.
    """

    def __init__(
        self,
        engine: Engine,
        key: Column[int],
        running: ColumnElement[bool],
        *,
        lease_s: float | None = None,
        confirm_s: float | None = None,
        restart_grace_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._key = key
        self._running = running
        self.lease_s = LEASE_S if lease_s is None else lease_s
        self._confirm_s = self.lease_s * CONFIRM_SHARE if confirm_s is None else confirm_s
        self._restart_grace_s = self.lease_s / 2 if restart_grace_s is None else restart_grace_s
        self._seen: tuple[float, Mapping[tuple[int, float], float]] = (0.0, {})

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a lease should renew it."""
        return self.lease_s / HEARTBEATS_PER_LEASE

    def renewed(self) -> ColumnElement[float]:
        """Until when a lease lasts that is given,
        or renewed, by the statement that this stands in.
        """
        return database_now() + self.lease_s

    def overdue(self) -> ColumnElement[bool]:
        """Leases that ran out, but for those that may have done so while the server was down:
        nobody could renew.

        One that lasts far longer than any that is given was given before the clock was set back:
        nobody would live to see its end. Whoever holds it renews it soon, to an end by the clock as
        it is now.
        """
        c = self._key.table.c
        now, started = database_now(), database_started()
        fair = (c.claimed_at >= started) | (now - started >= self._restart_grace_s)
        set_back = c.leased_until > now + SET_BACK_LEASES * max(self.lease_s, LEASE_S)
        return self._running & ((c.leased_until < now) | set_back) & fair

    def confirmed(self) -> list[int]:
        """The keys of leases that have been overdue,
        and not renewed, for long enough under these eyes.

        To be called often, at least once in `confirm_s`: a lease is confirmed by a later call than
        the one that sees it first.
        """
        now = time.monotonic()
        looked_at, known = self._seen
        # Who could not look, or did not, has not seen that nobody renewed.
        self._seen = (0.0, {})
        if now - looked_at > self._confirm_s:
            known = {}
        query = select(self._key, self._key.table.c.leased_until).where(self.overdue())
        with self._engine.connect() as connection:
            rows: list[Any] = list(connection.execute(query))
        since = {(key, until): known.get((key, until), now) for key, until in rows}
        self._seen = (now, since)
        return [key for (key, _), at in since.items() if now - at >= self._confirm_s]
