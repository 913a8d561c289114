"""The life of a claim, which is the same for trials and for verification runs.

Work is claimed under a token, with a lease on the database's clock. The lease is renewed under the
token, and ends in one of three ways:

- *finished*: the result is recorded, once, by the holder of the running token;
- *returned*: the work was handed back, or its worker was ended on purpose;
- *lost*: the lease ran out, or the worker died. What loses its worker too often is set aside as
  failed: it may be what kills them.

What a worker writes after it lost its lease is kept with what it held, and never counted.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Engine, Label, Row, func, select, update

from tuner.storage import schema
from tuner.storage.dialects import DURABLE, database_now, database_started
from tuner.storage.queue.roster import log_lost
from tuner.storage.records import Counts, TrialResult, set_aside

# Leases: how long a worker may be silent, and when what it held is taken back. Of trials and of
# verification runs.


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


Claimed = TypeVar("Claimed")
Ticket_contra = TypeVar("Ticket_contra", contravariant=True)


class Queue(ABC, Generic[Claimed, Ticket_contra]):
    """Pieces of work in a table, each claimed by one worker at a time, each with one result.

    Of the table, the queue has the rows that `mine` selects. A claim gives what is `Claimed`; a
    `Ticket` is enough to renew it, to finish it, or to give it back. The table has the columns
    `state`, `token`, `worker`, `claimed_at`, `leased_until` and `result`, and `key` is its number.
    """

    def __init__(self, engine: Engine, key: Column[int], mine: ColumnElement[bool]) -> None:
        self._engine = engine
        self._table = key.table
        self._key = key
        self._mine = mine
        self._running: ColumnElement[bool] = self._table.c.state == "running"
        self._seen: tuple[float, Mapping[tuple[int, float], float]] = (0.0, {})
        self.lease_s = LEASE_S
        self.confirm_s = LEASE_S * CONFIRM_SHARE
        """For so long a lease is watched once it ran out."""
        self.restart_grace_s = LEASE_S / 2
        """For so long after a start of the server no lease is taken back."""

    # -- leases ------------------------------------------------------------------------------------

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a claim should renew it."""
        return self.lease_s / HEARTBEATS_PER_LEASE

    def _renewed(self) -> ColumnElement[float]:
        """Until when a lease lasts that is given,
        or renewed, by the statement that this stands in.
        """
        return database_now() + self.lease_s

    def _overdue(self) -> ColumnElement[bool]:
        """Leases that ran out, but for those that may have done so while the server was down:
        nobody could renew.

        One that lasts far longer than any that is given was given before the clock was set back:
        nobody would live to see its end. Whoever holds it renews it soon, to an end by the clock as
        it is now.
        """
        c = self._table.c
        now, started = database_now(), database_started()
        fair = (c.claimed_at >= started) | (now - started >= self.restart_grace_s)
        set_back = c.leased_until > now + SET_BACK_LEASES * max(self.lease_s, LEASE_S)
        return self._mine & self._running & ((c.leased_until < now) | set_back) & fair

    def _confirmed(self) -> list[int]:
        """The keys of leases that have been overdue,
        and not renewed, for long enough under these eyes.

        A lease is confirmed by a later call than the one that sees it first.
        """
        now = time.monotonic()
        looked_at, known = self._seen
        # Who could not look, or did not, has not seen that nobody renewed.
        self._seen = (0.0, {})
        if now - looked_at > self.confirm_s:
            known = {}
        query = select(self._key, self._table.c.leased_until).where(self._overdue())
        with self._engine.connect() as connection:
            rows: list[Any] = list(connection.execute(query))
        since = {(key, until): known.get((key, until), now) for key, until in rows}
        self._seen = (now, since)
        return [key for (key, _), at in since.items() if now - at >= self.confirm_s]

    # -- what a table of work has of its own -------------------------------------------------------

    def _lock(self, connection: Connection) -> None:
        """Take what has to be locked before any row is, in every transaction alike."""

    def _lock_to_claim(self, connection: Connection) -> None:
        """Take what has to be locked before a claim, and `_lock` beneath it."""
        self._lock(connection)

    def _looked_at(self) -> Sequence[Label[Any]]:
        """What else is read where a claim looks."""
        return ()

    @abstractmethod
    def _take(
        self, connection: Connection, worker: str, token: str, seen: Row[Any]
    ) -> Claimed | None:
        """Claim the next piece of work, by what was `seen`; None while there is none to give."""

    @abstractmethod
    def _read(self, row: Row[Any]) -> Claimed:
        """What a row that is claimed stands for."""

    @abstractmethod
    def _held_by(self, ticket: Ticket_contra) -> ColumnElement[bool]:
        """The row that was claimed with a ticket, under its token."""

    @abstractmethod
    def _work_of(self, row: Row[Any]) -> str:
        """What a row is called in a log."""

    def _at_the_end(self) -> dict[str, Any]:
        """What else is noted with a result."""
        return {}

    @abstractmethod
    def _keep_late(self, ticket: Ticket_contra, result: str) -> None:
        """Keep a result whose lease was lost. The first one that is said of a token stays."""

    @abstractmethod
    def _end(self, connection: Connection, row: Row[Any], state: str) -> int:
        """End a claim without a result; how often the work has lost its worker by now."""

    @abstractmethod
    def _put_back(self, connection: Connection, row: Row[Any]) -> None:
        """Let the work of a claim that ended wait again."""

    @abstractmethod
    def _set_aside(self, connection: Connection, row: Row[Any], result: str) -> None:
        """Record a result that is nobody's, for work that nobody is to have again."""

    def _settle_own(self, ticket: Ticket_contra) -> None:
        """The same for one result, which was just recorded."""

    def settle(self) -> None:
        """Tell whoever has to know of them the results that were recorded and not told yet: here
        nobody, the record is all there is.
        """

    # -- a worker's path: claim, renew, finish or give back ----------------------------------------

    def claim(self, worker: str, *, token: str | None = None) -> Claimed | None:
        """A piece of work, or None while there is none to give.

        To ask again after a failure that left open what was stored, give the same `token`: it
        claims once.

        Raises:
            StudyGoneError: the study was deleted.
        """
        token = token or uuid.uuid4().hex
        with self._engine.begin() as connection:
            self._lock_to_claim(connection)
            seen = self._look(connection, token)
            if seen.held is not None:
                return self._read(seen)
            return self._take(connection, worker, token, seen)

    def _look(self, connection: Connection, token: str) -> Row[Any]:
        """The row that `token` claimed before, where `held` is not None, and what else decides on a
        claim, all in one statement: others wait until this transaction is over. It is joined to the
        one row of `tuner_schema`, so that there is an answer where nothing is claimed.
        """
        mine = self._mine & (self._table.c.token == token)
        query = select(self._key.label("held"), *self._looked_at(), self._table)
        return connection.execute(query.outerjoin_from(schema.schema, self._table, mine)).one()

    def renew(self, ticket: Ticket_contra) -> bool:
        """Extend the lease; False when it was lost:
        the worker must stop, its result would not count.
        """
        return self._update_running(ticket, leased_until=self._renewed())

    def finish(self, ticket: Ticket_contra, result: TrialResult) -> bool:
        """Record the result under the token, then tell who has to know of it.

        False when the lease was lost meanwhile: the result is kept with what was held, and nobody
        is told. May be called again with the same ticket, as after an outage that left open what
        was stored: it counts once.
        """
        text = result.to_json()
        finished = self._update_running(
            ticket, durable=True, state="finished", result=text, **self._at_the_end()
        )
        if not finished and not self._has_recorded(ticket, text):
            self._keep_late(ticket, text)
            return False
        self._settle_own(ticket)
        return True

    def give_back(self, ticket: Ticket_contra) -> None:
        """Return the work undone: the next claim gets it as it was,
        and nothing is held against it.
        """
        with self._engine.begin() as connection:
            self._lock(connection)
            row = self._running_row(connection, ticket)
            if row is not None:
                self._release(connection, row, state="returned")

    def _update_running(
        self, ticket: Ticket_contra, *, durable: bool = False, **values: Any
    ) -> bool:
        held = self._held_by(ticket) & self._running
        with self._engine.execution_options(**{DURABLE: durable}).begin() as connection:
            done = connection.execute(update(self._table).where(held).values(**values))
            return done.rowcount == 1

    def _running_row(self, connection: Connection, ticket: Ticket_contra) -> Row[Any] | None:
        held = self._held_by(ticket) & self._running
        return connection.execute(select(self._table).where(held).with_for_update()).first()

    def _has_recorded(self, ticket: Ticket_contra, result: str) -> bool:
        held = self._held_by(ticket) & (self._table.c.state == "finished")
        with self._engine.connect() as connection:
            stored = connection.execute(select(self._table.c.result).where(held))
            return stored.scalar_one_or_none() == result

    # -- everybody's duty --------------------------------------------------------------------------

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back what is held by leases that ran out, or all of a `worker` known to be dead.
        Returns how many.

        To be called often, at least once in `confirm_s`. With `state="returned"` it is not held
        against the work: its worker was killed on purpose.
        """
        if worker is None:
            rows = self._reap_overdue(state)
            lost = [(self._work_of(row), row.worker) for row in rows]
            log_lost(self._engine, lost)
        else:
            theirs = self._mine & self._running & (self._table.c.worker == worker)
            # By a plain look first: nearly always nothing is due, and claims need not wait for us.
            rows = self._take_back(theirs, state) if self._any(theirs) else ()
        self.settle()
        return len(rows)

    def _reap_overdue(self, state: str) -> Sequence[Row[Any]]:
        confirmed = self._confirmed()
        if not confirmed:
            return ()
        due = self._overdue() & self._key.in_(confirmed)
        return self._take_back(due, state, skip_locked=True)

    def _take_back(
        self, due: ColumnElement[bool], state: str, *, skip_locked: bool = False
    ) -> Sequence[Row[Any]]:
        query = select(self._table).where(due).with_for_update(skip_locked=skip_locked)
        with self._engine.begin() as connection:
            self._lock(connection)  # before any claim, as whoever claims does
            rows = connection.execute(query).all()
            for row in rows:
                self._release(connection, row, state=state)
        return rows

    def _any(self, condition: ColumnElement[bool]) -> bool:
        query = select(self._key).where(condition).limit(1)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def _release(self, connection: Connection, row: Row[Any], *, state: str) -> None:
        """End a claim without a result and put its work back,
        in the caller's transaction: both or neither.
        """
        lost = self._end(connection, row, state)
        if lost >= MAX_ATTEMPTS:
            self._set_aside(connection, row, set_aside(lost).to_json())
        else:
            self._put_back(connection, row)

    # -- how much there is -------------------------------------------------------------------------

    @abstractmethod
    def counts(self) -> Counts:
        """What is planned, running and finished."""

    def results(self, worker: str) -> int:
        """How many results of `worker` count. Work that was set aside is nobody's."""
        c = self._table.c
        theirs = self._mine & (c.worker == worker) & (c.state == "finished")
        query = select(func.count()).select_from(self._table).where(theirs)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def _by_state(self, connection: Connection) -> dict[str, int]:
        state = self._table.c.state
        query = select(state, func.count()).where(self._mine).group_by(state)
        return {str(row[0]): int(row[1]) for row in connection.execute(query)}
