"""Runs that verify configurations on fresh seeds: planned whole, claimed one by one, each with one recorded result.

A row is a run: its place in the plan, its lease while a worker has it, and at last its result. So there is no budget to
keep exact, and a plan can be made again: what is there stays. Leases and tokens mean what they mean in the ledger of
trials: a lease expires on the database's clock, and only the holder of the running token can write the result. What a
worker writes after it lost its lease is kept beside it, and never counted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, func, insert, select, update

from tuner.storage.clock import database_now
from tuner.storage.leases import MAX_ATTEMPTS, Leases
from tuner.storage.records import Counts, RunTicket, TrialResult, set_aside
from tuner.storage.roster import log_lost
from tuner.storage.schema import verifications
from tuner.storage.trials import DURABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run to make: a trial's configuration on a fresh seed, and when (`place` in the random order)."""

    study_id: int
    trial_number: int
    params: dict[str, float | int]
    seed: int
    block: int
    place: int
    session: str
    plan: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRun(PlannedRun):
    """A planned run and what became of it. `result` is there once `state` is "finished"."""

    run_id: int
    state: str
    losses: int
    token: str | None
    worker: str | None
    result: TrialResult | None
    late: tuple[TrialResult, ...] = ()
    """Of workers that had lost their lease by then: for the record."""

    @property
    def ticket(self) -> RunTicket:
        """Of a run that is claimed."""
        assert self.token is not None, "nobody has claimed this run"
        return RunTicket(self.run_id, self.token)


class Verifications:
    """The verification runs of some studies, which workers share. Of their leases: see `Leases`."""

    def __init__(
        self,
        engine: Engine,
        study_ids: Sequence[int],
        *,
        lease_s: float | None = None,
        confirm_s: float | None = None,
        restart_grace_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._mine: ColumnElement[bool] = verifications.c.study_id.in_(list(study_ids))
        self._leases = Leases(
            engine,
            verifications.c.run_id,
            self._mine & (verifications.c.state == "running"),
            lease_s=lease_s,
            confirm_s=confirm_s,
            restart_grace_s=restart_grace_s,
        )

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a run should renew its lease."""
        return self._leases.heartbeat_s

    def add(self, runs: Sequence[PlannedRun]) -> int:
        """Plan `runs`; those that are there already (same trial, same seed) stay as they are. Returns how many are new.

        To be called by one process at a time (under the initialisation lock).
        """
        c = verifications.c
        with self._engine.begin() as connection:
            rows = connection.execute(select(c.study_id, c.trial_number, c.seed).where(self._mine))
            there = {(row.study_id, row.trial_number, row.seed) for row in rows}
            new = [run for run in runs if (run.study_id, run.trial_number, run.seed) not in there]
            if new:
                connection.execute(insert(verifications), [_row(run) for run in new])
        return len(new)

    def runs(self) -> tuple[VerificationRun, ...]:
        """All runs, in the order of the plan."""
        query = select(verifications).where(self._mine).order_by(verifications.c.place, verifications.c.run_id)
        with self._engine.connect() as connection:
            return tuple(_run(row) for row in connection.execute(query))

    def note(self, run: VerificationRun, plan: dict[str, Any]) -> None:
        """Replace what `run` keeps of its plan."""
        mine = self._mine & (verifications.c.run_id == run.run_id)
        with self._engine.begin() as connection:
            connection.execute(update(verifications).where(mine).values(plan=json.dumps(plan, sort_keys=True)))

    def waiting_plans(self) -> dict[str, dict[str, Any]]:
        """The plans of the sessions that have runs waiting."""
        c = verifications.c
        query = select(c.session, func.min(c.plan)).where(self._mine & (c.state == "waiting")).group_by(c.session)
        with self._engine.connect() as connection:
            return {str(row[0]): json.loads(row[1]) for row in connection.execute(query)}

    def counts(self) -> Counts:
        """Runs: planned (without skipped ones), running and finished."""
        c = verifications.c
        query = select(c.state, func.count()).where(self._mine).group_by(c.state)
        with self._engine.connect() as connection:
            by_state = {str(row[0]): int(row[1]) for row in connection.execute(query)}
        planned = sum(count for state, count in by_state.items() if state != "skipped")
        return Counts(planned, by_state.get("running", 0), by_state.get("finished", 0))

    def results(self, worker: str) -> int:
        """How many results `worker` has recorded. A run that was set aside is nobody's."""
        c = verifications.c
        theirs = self._mine & (c.worker == worker) & (c.state == "finished")
        with self._engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(verifications).where(theirs)).scalar_one()

    # -- a worker's path: claim, renew, finish or give back ------------------------------------------------------------

    def claim(self, worker: str, *, token: str | None = None) -> VerificationRun | None:
        """The next run of the plan, or None when none waits.

        To ask again after a failure that left open what was stored, give the same `token`: it claims once.
        """
        c = verifications.c
        waiting = (
            select(c.run_id)
            .where(self._mine & (c.state == "waiting"))
            .order_by(c.place, c.run_id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        token = token or uuid.uuid4().hex
        with self._engine.begin() as connection:
            held = connection.execute(select(verifications).where(self._mine & (c.token == token))).first()
            if held is not None:
                return _run(held)
            run_id = connection.execute(waiting).scalar_one_or_none()
            if run_id is None:
                return None
            claimed = {"state": "running", "token": token, "worker": worker}
            connection.execute(
                update(verifications)
                .where(c.run_id == run_id)
                .values(claimed_at=database_now(), leased_until=self._leases.renewed(), **claimed)
            )
            return _run(connection.execute(select(verifications).where(c.run_id == run_id)).one())

    def renew(self, run: VerificationRun) -> bool:
        """Extend the lease; False when it was lost: the worker must stop, its result would not count."""
        return self._update_running(run, leased_until=self._leases.renewed())

    def finish(self, run: VerificationRun | RunTicket, result: TrialResult) -> bool:
        """Record the result; False when the lease was lost meanwhile: then it is kept as `late`.

        May be called again with the same run, as after an outage that left open what was stored: it counts once.
        """
        text = result.to_json()
        if self._update_running(run, durable=True, state="finished", result=text, ended_at=database_now()):
            return True
        c = verifications.c
        with self._engine.begin() as connection:
            query = select(c.token, c.state, c.result, c.late).where(c.run_id == run.run_id)
            stored = connection.execute(query.with_for_update()).first()
            if stored is None:
                return False
            if stored.token == run.token:
                return (stored.state, stored.result) == ("finished", text)
            # the first one said of a token stays
            late = {run.token: json.loads(text)} | json.loads(stored.late or "{}")
            connection.execute(update(verifications).where(c.run_id == run.run_id).values(late=json.dumps(late)))
        return False

    def give_back(self, run: VerificationRun) -> None:
        """Put the run back into the queue, as after an interruption: the next claim gets it, at its old place."""
        self._update_running(run, **_RELEASED)

    # -- everybody's duty ----------------------------------------------------------------------------------------------

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back the runs whose lease ran out, or all of a `worker` known to be dead. Returns how many.

        To be called often: see `Leases.confirmed`. With `state="returned"` it is not held against the run: its worker
        was killed on purpose. A run that lost its worker three times is set aside as failed.
        """
        c = verifications.c
        if worker is None:
            confirmed = self._leases.confirmed()
            if not confirmed:
                return 0
            due = self._leases.overdue() & c.run_id.in_(confirmed)
        else:
            due = self._mine & (c.state == "running") & (c.worker == worker)
        query = select(c.run_id, c.losses, c.trial_number, c.seed, c.worker).where(due)
        with self._engine.begin() as connection:
            rows = connection.execute(query.with_for_update(skip_locked=worker is None)).all()
            for row in rows:
                self._release(connection, row.run_id, losses=row.losses + (state == "lost"))
        if worker is None:
            work = [(f"the run of trial {row.trial_number} on seed {row.seed}", row.worker) for row in rows]
            log_lost(self._engine, work)
        return len(rows)

    def skip_waiting(self, session: str, reason: str, *, look: int) -> int:
        """Take the runs of `session` that nobody has begun off the plan: its answer is clear. Returns how many.

        `look` is after how many seeds it was clear: the verdict rests on those.
        """
        waiting = self._mine & (verifications.c.session == session) & (verifications.c.state == "waiting")
        result = json.dumps({"state": "WAITING", "values": None, "attributes": {"skipped": reason, "look": look}})
        with self._engine.begin() as connection:
            done = connection.execute(update(verifications).where(waiting).values(state="skipped", result=result))
            return int(done.rowcount)

    def _release(self, connection: Connection, run_id: int, *, losses: int) -> None:
        values = dict(_RELEASED)
        if losses >= MAX_ATTEMPTS:
            values |= {"state": "finished", "result": set_aside(losses).to_json(), "ended_at": database_now()}
        connection.execute(
            update(verifications).where(verifications.c.run_id == run_id).values(losses=losses, **values)
        )

    def _update_running(self, run: VerificationRun | RunTicket, *, durable: bool = False, **values: Any) -> bool:
        c = verifications.c
        held = (c.run_id == run.run_id) & (c.token == run.token) & (c.state == "running")
        with self._engine.execution_options(**{DURABLE: durable}).begin() as connection:
            return connection.execute(update(verifications).where(held).values(**values)).rowcount == 1


_RELEASED: dict[str, Any] = {"state": "waiting", "token": None, "worker": None, "leased_until": None}


def _row(run: PlannedRun) -> dict[str, Any]:
    return {
        "study_id": run.study_id,
        "trial_number": run.trial_number,
        "params": json.dumps(run.params, sort_keys=True),
        "seed": run.seed,
        "block": run.block,
        "place": run.place,
        "session": run.session,
        "plan": json.dumps(run.plan, sort_keys=True),
        "state": "waiting",
        "losses": 0,
    }


def _run(row: Row[Any]) -> VerificationRun:
    return VerificationRun(
        run_id=row.run_id,
        study_id=row.study_id,
        trial_number=row.trial_number,
        params=json.loads(row.params),
        seed=row.seed,
        block=row.block,
        place=row.place,
        session=row.session,
        plan=json.loads(row.plan),
        state=row.state,
        losses=row.losses,
        token=row.token,
        worker=row.worker,
        result=TrialResult.from_json(row.result) if row.result else None,
        late=tuple(TrialResult.from_json(json.dumps(each)) for each in json.loads(row.late or "{}").values()),
    )


def recorded_row(run: VerificationRun) -> dict[str, Any]:
    """The row of a run that ended elsewhere, e.g. in the database that a study was exported from."""
    result = run.result.to_json() if run.result else None
    return _row(run) | {"state": run.state, "losses": run.losses, "worker": run.worker, "result": result}
