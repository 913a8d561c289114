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
from typing import Any, Generic, Protocol, TypeVar

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


Claimed = TypeVar("Claimed")
Ticket = TypeVar("Ticket")


class LeasedQueue(ABC, Generic[Claimed, Ticket]):
    """A queue in a table, of the rows that `mine` selects; see `Queue`.

    A claim gives what is `Claimed`; a `Ticket` is enough to renew it, to finish it, or to give it
    back. The table has the columns `state`, `token`, `worker`, `claimed_at`, `leased_until` and
    `result`, and `key` is its number. How long a lease lasts, and when it is taken back: see
    `Leases`.
    """

    def __init__(
        self,
        engine: Engine,
        key: Column[int],
        mine: ColumnElement[bool],
        *,
        lease_s: float | None = None,
        confirm_s: float | None = None,
        restart_grace_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._table = key.table
        self._key = key
        self._mine = mine
        self._running: ColumnElement[bool] = self._table.c.state == "running"
        self._leases = Leases(
            engine,
            key,
            mine & self._running,
            lease_s=lease_s,
            confirm_s=confirm_s,
            restart_grace_s=restart_grace_s,
        )

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a claim should renew it."""
        return self._leases.heartbeat_s

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
    def _held_by(self, ticket: Ticket) -> ColumnElement[bool]:
        """The row that was claimed with a ticket, under its token."""

    @abstractmethod
    def _work_of(self, row: Row[Any]) -> str:
        """What a row is called in a log."""

    def _at_the_end(self) -> dict[str, Any]:
        """What else is noted with a result."""
        return {}

    @abstractmethod
    def _keep_late(self, ticket: Ticket, result: str) -> None:
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

    def _settle_own(self, ticket: Ticket) -> None:
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

    def renew(self, ticket: Ticket) -> bool:
        """Extend the lease; False when it was lost:
        the worker must stop, its result would not count.
        """
        return self._update_running(ticket, leased_until=self._leases.renewed())

    def finish(self, ticket: Ticket, result: TrialResult) -> bool:
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

    def give_back(self, ticket: Ticket) -> None:
        """Return the work undone: the next claim gets it as it was,
        and nothing is held against it.
        """
        with self._engine.begin() as connection:
            self._lock(connection)
            row = self._running_row(connection, ticket)
            if row is not None:
                self._release(connection, row, state="returned")

    def _update_running(self, ticket: Ticket, *, durable: bool = False, **values: Any) -> bool:
        held = self._held_by(ticket) & self._running
        with self._engine.execution_options(**{DURABLE: durable}).begin() as connection:
            done = connection.execute(update(self._table).where(held).values(**values))
            return done.rowcount == 1

    def _running_row(self, connection: Connection, ticket: Ticket) -> Row[Any] | None:
        held = self._held_by(ticket) & self._running
        return connection.execute(select(self._table).where(held).with_for_update()).first()

    def _has_recorded(self, ticket: Ticket, result: str) -> bool:
        held = self._held_by(ticket) & (self._table.c.state == "finished")
        with self._engine.connect() as connection:
            stored = connection.execute(select(self._table.c.result).where(held))
            return stored.scalar_one_or_none() == result

    # -- everybody's duty --------------------------------------------------------------------------

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back what is held by leases that ran out, or all of a `worker` known to be dead.
        Returns how many.

        To be called often: see `Leases.confirmed`. With `state="returned"` it is not held against
        the work: its worker was killed on purpose.
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
        confirmed = self._leases.confirmed()
        if not confirmed:
            return ()
        due = self._leases.overdue() & self._key.in_(confirmed)
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


# What every queue of work offers to those who do the work, and to those who watch over them.


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
