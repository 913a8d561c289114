"""Who may train on a device, among workers that cannot see each other's lock files.

Workers that share a lock folder are one *domain*. They are kept apart by its lock files, and hold a
device together here: while nobody else wants it, a lease costs one statement now and then. Workers
of other domains queue up by ticket. Whoever holds a device sees that they wait, gives it up after
its present training and goes to the end of the queue: so domains take turns.

A lease that ran out stands until somebody of another domain has watched it stay so for a while, on
its own clock, and then removes it: after an outage all have run out at once, and living holders are
about to renew theirs. So whoever still has its row has had the device all the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, update

from tuner.storage.dialects import database_now
from tuner.storage.queue.leased_queue import (
    CONFIRM_SHARE,
    HEARTBEATS_PER_LEASE,
    LEASE_S,
    SET_BACK_LEASES,
)
from tuner.storage.schema import device_leases

FORGOTTEN_LEASES = 20.0
"""What ran out so many leases ago is removed by whoever comes by: its worker was killed."""
HELD, WAITING = "held", "waiting"
_c = device_leases.c


@dataclass(frozen=True, slots=True)
class Ahead:
    """Who has a device, or is to have it first. `since` is in seconds since 1970 on the database's
    clock; `ran_out`: its lease did, and it may be there no more.
    """

    worker: str
    host: str
    state: str
    since: float
    ran_out: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How a lease stood when it was looked at."""

    lost: bool
    """Somebody else has been given the device."""
    others_wait: bool
    """Of another domain."""
    disturbed: str
    """Who trained there as well, having lost the lease without knowing; empty: nobody known."""


@dataclass(slots=True, kw_only=True)
class DeviceLeases:
    """The leases of one worker on the devices `keys`, which it holds all or none.

    A lease lasts `lease_s` seconds; one that ran out is watched for `confirm_s` seconds (half a
    lease) before it counts for nothing.
    """

    engine: Engine
    keys: Sequence[str]
    worker: str
    host: str
    lease_s: float = LEASE_S
    confirm_s: float = LEASE_S * CONFIRM_SHARE
    _overdue: dict[tuple[int, float], float] = field(default_factory=dict)
    """Since when, on this process's clock, leases of others were seen to have run out."""

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder should renew."""
        return self.lease_s / HEARTBEATS_PER_LEASE

    # -- getting it --------------------------------------------------------------------------------

    def advance(self, domain: str) -> tuple[Ahead | None, bool]:
        """Ask for the devices, in one order for all so that nobody waits in a circle: None once all
        are held, else who is ahead. Then whether a lease that ran out was taken over.

        To be called again at least twice a lease while one waits: it keeps the place in the queue.
        """
        self._queue_up(domain)
        with self.engine.begin() as connection:
            now, rows = self._locked(connection)
            self._forget(connection, rows, now)
            over: list[Row[Any]] = []
            ahead = None
            for key in sorted(self.keys):
                there = [row for row in rows if row.device_key == key]
                ahead = self._granted(connection, there, domain, now, over)
                if ahead is not None:
                    self._leave_queues_after(connection, key)
                    break
            return ahead, bool(over)

    def _queue_up(self, domain: str) -> None:
        """A ticket for each device. It has to be there for all to see before anything follows from
        who else has one: so in a transaction before that.
        """
        with self.engine.begin() as connection:
            mine = (_c.worker == self.worker) & _c.device_key.in_(self.keys)
            query = select(_c.device_key).where(mine & (_c.domain == domain))
            there = set(connection.execute(query).scalars())
            connection.execute(delete(device_leases).where(mine & (_c.domain != domain)))
            now = database_now()
            row = {"worker": self.worker, "host": self.host, "domain": domain, "state": WAITING}
            times = {"since": now, "leased_until": now + self.lease_s}
            for key in sorted(set(self.keys) - there):
                connection.execute(insert(device_leases).values(device_key=key, **row, **times))

    def _locked(self, connection: Connection) -> tuple[float, Sequence[Row[Any]]]:
        """All tickets for the devices, locked in one order for all, and the database's time."""
        query = select(device_leases).where(_c.device_key.in_(self.keys))
        rows = connection.execute(query.order_by(_c.device_key, _c.ticket).with_for_update()).all()
        return float(connection.execute(select(database_now())).scalar_one()), rows

    def _granted(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        domain: str,
        now: float,
        over: list[Row[Any]],
    ) -> Ahead | None:
        """Take the device whose tickets `rows` are, if it is our turn; else who is before us. What
        had run out and is removed is added to `over`.
        """
        mine = next((row for row in rows if row.worker == self.worker), None)
        if mine is None:  # somebody took it for dead just now
            return Ahead(self.worker, self.host, WAITING, now, ran_out=True)
        gone = []
        for row in rows:
            if mine.state == HELD or row.domain == domain:
                continue
            ran_out = self._has_run_out(row, now)
            if row.state == HELD and ran_out and self._confirmed(row):
                gone.append(row)
            elif row.state == HELD or (row.ticket < mine.ticket and not ran_out):
                self._update(connection, mine, leased_until=now + self.lease_s)
                return Ahead(row.worker, row.host, row.state, row.since, ran_out)
        self._remove(connection, gone)
        over += gone
        got = {} if mine.state == HELD else {"state": HELD, "since": now, "disturbed": None}
        self._update(connection, mine, leased_until=now + self.lease_s, **got)
        return None

    def _has_run_out(self, row: Row[Any], now: float) -> bool:
        """One that lasts far longer than any that is given was given before the clock was set
        back.
        """
        set_back = row.leased_until > now + SET_BACK_LEASES * max(self.lease_s, LEASE_S)
        return bool(row.leased_until < now or set_back)

    def _confirmed(self, row: Row[Any]) -> bool:
        now = time.monotonic()
        since = self._overdue.setdefault((row.ticket, row.leased_until), now)
        return now - since >= self.confirm_s

    def _leave_queues_after(self, connection: Connection, key: str) -> None:
        """Who has to wait for a device queues for none that comes after it."""
        later = (_c.worker == self.worker) & (_c.state == WAITING) & (_c.device_key > key)
        connection.execute(delete(device_leases).where(later & _c.device_key.in_(self.keys)))

    def _forget(self, connection: Connection, rows: Iterable[Row[Any]], now: float) -> None:
        long_ago = now - FORGOTTEN_LEASES * self.lease_s
        old = [r for r in rows if r.leased_until < long_ago and r.worker != self.worker]
        self._remove(connection, old)

    def _remove(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        if rows:
            tickets = [row.ticket for row in rows]
            connection.execute(delete(device_leases).where(_c.ticket.in_(tickets)))

    def _update(self, connection: Connection, row: Row[Any], **values: Any) -> None:
        mine = _c.ticket == row.ticket
        connection.execute(update(device_leases).where(mine).values(**values))

    # -- having it ---------------------------------------------------------------------------------

    def renew(self, domain: str) -> Standing:
        """Extend the lease, and see who waits for it."""
        held = (_c.worker == self.worker) & (_c.state == HELD) & _c.device_key.in_(self.keys)
        with self.engine.begin() as connection:
            renewed = update(device_leases).where(held)
            done = connection.execute(renewed.values(leased_until=database_now() + self.lease_s))
            others = self._of_others(domain, WAITING) & (_c.leased_until >= database_now())
            waiting = select(func.count()).select_from(device_leases).where(others)
            told = select(_c.disturbed).where(held & _c.disturbed.is_not(None)).limit(1)
            return Standing(
                lost=done.rowcount != len(set(self.keys)),
                others_wait=connection.execute(waiting).scalar_one() > 0,
                disturbed=connection.execute(told).scalar_one_or_none() or "",
            )

    def tell_disturbed(self, domain: str) -> None:
        """Say to those who have the devices now that this worker still trained there."""
        told = f"{self.worker} on {self.host} trained there as well: its lease had run out"
        with self.engine.begin() as connection:
            theirs = self._of_others(domain, HELD)
            connection.execute(update(device_leases).where(theirs).values(disturbed=told[:200]))

    def forgive(self) -> None:
        """What was told has been taken into account."""
        with self.engine.begin() as connection:
            mine = _c.worker == self.worker
            connection.execute(update(device_leases).where(mine).values(disturbed=None))

    def release(self) -> None:
        """Give the devices up, and leave all queues."""
        mine = (_c.worker == self.worker) & _c.device_key.in_(self.keys)
        with self.engine.begin() as connection:
            connection.execute(delete(device_leases).where(mine))

    def _of_others(self, domain: str, state: str) -> Any:
        there = _c.device_key.in_(self.keys) & (_c.state == state)
        return there & (_c.domain != domain) & (_c.worker != self.worker)
