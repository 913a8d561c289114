"""The life of a claim, which is the same for trials and for verification runs.

Work is claimed under a token, with a lease on the database's clock. The lease is renewed under the
token, and ends in one of three ways:

- *finished*: the result is recorded, once, by the holder of the running token;
- *returned*: the work was handed back, or its worker was ended on purpose;
- *lost*: the lease ran out, or the worker died. What loses its worker too often is set aside as
  failed: it may be what kills them.

An attempt is a row of its own. When it ends without a result, the work waits again in another row.
What a worker writes after it lost its lease is kept with its attempt, and never counted.
"""

from __future__ import annotations

import functools
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Label,
    Result,
    Row,
    Select,
    and_,
    bindparam,
    func,
    insert,
    select,
    update,
)

from tuner.storage import schema
from tuner.storage.dialects import DURABLE, database_now, database_started
from tuner.storage.queue.roster import log_lost
from tuner.storage.records import Counts, TrialResult, set_aside
from tuner.storage.schema import PIECE, SAME_WORK, work

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


SET_ASIDE_BY = "tuner"
"""The worker of a result that is nobody's."""


class Ticket(Protocol):
    """What it takes to renew a claim, to finish it, or to give it back."""

    @property
    def work_id(self) -> int: ...
    @property
    def token(self) -> str | None: ...


Claimed = TypeVar("Claimed")


class Queue(ABC, Generic[Claimed]):
    """Pieces of work of one kind, each claimed by one worker at a time, each with one result.

    Of the table of work, the queue has the rows of its kind whose study is one `of`. A claim gives
    what is `Claimed`.
    """

    kind: ClassVar[str]

    def __init__(self, engine: Engine, of: ColumnElement[bool]) -> None:
        self._engine = engine
        self._mine = of & (work.c.kind == self.kind)
        self._running: ColumnElement[bool] = work.c.state == "running"
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
        c = work.c
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
        query = select(work.c.work_id, work.c.leased_until).where(self._overdue())
        with self._engine.connect() as connection:
            rows: list[Any] = list(connection.execute(query))
        since = {(key, until): known.get((key, until), now) for key, until in rows}
        self._seen = (now, since)
        return [key for (key, _), at in since.items() if now - at >= self.confirm_s]

    # -- what a kind of work has of its own --------------------------------------------------------

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
    def _work_of(self, row: Row[Any]) -> str:
        """What a row is called in a log."""

    def _put_back(self, connection: Connection, row: Row[Any]) -> None:
        """Tell whoever has to know of it that the work of a claim that ended waits again."""

    def settle(self) -> None:
        """Tell whoever has to know of them the results that were recorded and not told yet."""

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
        rows: Result[Any] = connection.execute(self._look_query, {"asked": token})
        return rows.one()

    @functools.cached_property
    def _look_query(self) -> Select[Any]:
        """Made once: what it takes to make it, others would wait for."""
        mine = self._mine & (work.c.token == bindparam("asked"))
        query = select(work.c.work_id.label("held"), *self._looked_at(), work)
        return query.outerjoin_from(schema.schema, work, mine)

    def _begin(self, connection: Connection, work_id: int, worker: str, token: str) -> None:
        """Let a row that waits be this worker's."""
        mine = work.c.work_id == work_id
        connection.execute(update(work).where(mine).values(self._begun(worker, token)))

    def _begun(self, worker: str, token: str) -> dict[str, Any]:
        """The columns of an attempt that begins."""
        claimed = {"state": "running", "token": token, "worker": worker}
        return claimed | {"claimed_at": database_now(), "leased_until": self._renewed()}

    def renew(self, ticket: Ticket, had_s: float = 0.0) -> bool:
        """Extend the lease of what has had its device for so many seconds; False when it was lost:
        the worker must stop, its result would not count.
        """
        return self._update_running(ticket, leased_until=self._renewed(), had_s=had_s)

    def finish(self, ticket: Ticket, result: TrialResult) -> bool:
        """Record the result under the token.

        False when the lease was lost meanwhile: the result is kept with what was held, and nobody
        is told. May be called again with the same ticket, as after an outage that left open what
        was stored: it counts once.
        """
        text = result.to_json()
        if not self._record(ticket, result, text) and not self._has_recorded(ticket, text):
            self._keep_late(ticket, text)
            return False
        return True

    def _record(self, ticket: Ticket, result: TrialResult, text: str) -> bool:
        """Under the token, and on disk once this returns."""
        del result
        return self._update_running(ticket, durable=True, **ended_with(text))

    def give_back(self, ticket: Ticket, had_s: float | None = None) -> None:
        """Return the work undone: the next claim gets it as it was, and nothing is held against it.
        It had its device for so many seconds; None: as many as its last life sign said.
        """
        with self._engine.begin() as connection:
            self._lock(connection)
            held = self._held_by(ticket) & self._running
            row = connection.execute(select(work).where(held).with_for_update()).first()
            if row is not None:
                self._release(connection, row, state="returned", had_s=had_s)

    def _held_by(self, ticket: Ticket) -> ColumnElement[bool]:
        """The row that was claimed with a ticket, under its token."""
        return (work.c.work_id == ticket.work_id) & (work.c.token == ticket.token)

    def _update_running(self, ticket: Ticket, *, durable: bool = False, **values: Any) -> bool:
        held = self._held_by(ticket) & self._running
        with self._engine.execution_options(**{DURABLE: durable}).begin() as connection:
            return connection.execute(update(work).where(held).values(**values)).rowcount == 1

    def _has_recorded(self, ticket: Ticket, result: str) -> bool:
        held = self._held_by(ticket) & (work.c.state == "finished")
        with self._engine.connect() as connection:
            stored = connection.execute(select(work.c.result).where(held))
            return stored.scalar_one_or_none() == result

    def _keep_late(self, ticket: Ticket, result: str) -> None:
        """Keep a result whose lease was lost. The first one that is said of a token stays."""
        ended = work.c.state.in_(("lost", "returned")) & work.c.result.is_(None)
        kept = update(work).where(self._held_by(ticket) & ended).values(result=result)
        with self._engine.begin() as connection:
            connection.execute(kept)

    # -- everybody's duty --------------------------------------------------------------------------

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back what is held by leases that ran out, or all of a `worker` known to be dead.
        Returns how many.

        To be called often, at least once in `confirm_s`. With `state="returned"` it is not held
        against the work: its worker was killed on purpose.
        """
        if worker is None:
            confirmed = self._confirmed()
            due = self._overdue() & work.c.work_id.in_(confirmed)
            rows = self._take_back(due, state, skip_locked=True) if confirmed else ()
            lost = [(self._work_of(row), row.worker) for row in rows]
            log_lost(self._engine, lost)
        else:
            theirs = self._mine & self._running & (work.c.worker == worker)
            # By a plain look first: nearly always nothing is due, and claims need not wait for us.
            rows = self._take_back(theirs, state) if self._any(theirs) else ()
        self.settle()
        return len(rows)

    def _take_back(
        self, due: ColumnElement[bool], state: str, *, skip_locked: bool = False
    ) -> Sequence[Row[Any]]:
        query = select(work).where(due).with_for_update(skip_locked=skip_locked)
        with self._engine.begin() as connection:
            self._lock(connection)  # before any claim, as whoever claims does
            rows = connection.execute(query).all()
            for row in rows:
                self._release(connection, row, state=state)
        return rows

    def _any(self, condition: ColumnElement[bool]) -> bool:
        query = select(work.c.work_id).where(condition).limit(1)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def _release(
        self, connection: Connection, row: Row[Any], *, state: str, had_s: float | None = None
    ) -> None:
        """End a claim without a result and put its work back,
        in the caller's transaction: both or neither.
        """
        ended: dict[str, Any] = {"state": state, "ended_at": database_now()}
        if had_s is not None:
            ended["had_s"] = had_s
        connection.execute(update(work).where(work.c.work_id == row.work_id).values(ended))
        query = select(func.count()).select_from(work)
        lost = connection.execute(query.where(_same(row), work.c.state == "lost")).scalar_one()
        again = _piece(row)
        if lost >= MAX_ATTEMPTS:
            said = {"result": set_aside(lost).to_json(), "worker": SET_ASIDE_BY}
            now = dict.fromkeys(("claimed_at", "leased_until", "ended_at"), database_now())
            connection.execute(insert(work).values(again | said | now | {"state": "finished"}))
            return
        wait_again(connection, row)
        self._put_back(connection, row)

    # -- how much there is -------------------------------------------------------------------------

    @abstractmethod
    def counts(self) -> Counts:
        """What is planned, running and finished."""

    def results(self, worker: str) -> int:
        """How many results of `worker` count. Work that was set aside is nobody's."""
        c = work.c
        theirs = self._mine & (c.worker == worker) & (c.state == "finished")
        query = select(func.count()).select_from(work).where(theirs)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def workers(self) -> list[str]:
        """Who is at work now."""
        query = select(work.c.worker).where(self._mine & self._running).distinct()
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def _by_state(self, connection: Connection) -> dict[str, int]:
        state = work.c.state
        query = select(state, func.count()).where(self._mine).group_by(state)
        return {str(row[0]): int(row[1]) for row in connection.execute(query)}


def ended_with(result: str) -> dict[str, Any]:
    """The columns of an attempt that came to this result."""
    return {"state": "finished", "result": result, "ended_at": database_now()}


def wait_again(connection: Connection, row: Row[Any]) -> None:
    """Let the work of an attempt that is over wait for another one."""
    connection.execute(insert(work).values(_piece(row) | {"state": "waiting"}))


def _piece(row: Row[Any]) -> dict[str, Any]:
    return {each.name: row._mapping[each.name] for each in PIECE}  # noqa: SLF001


def _same(row: Row[Any]) -> ColumnElement[bool]:
    """All attempts at the piece of work that a row is one of."""
    return and_(*(each == getattr(row, each.name) for each in SAME_WORK))
