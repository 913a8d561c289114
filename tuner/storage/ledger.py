"""Who runs which trial: claims with a lease, under an exact budget.

A claim is the budget's ticket, the trial, its lease and, at last, its result, in one row. The budget is exact because a
claim is only made while the study's row is locked and running + finished claims are fewer than the budget; it cannot
leak because there is no counter beside the rows. The trial is taken in the same transaction: a worker that dies leaves
no trial behind that nobody claims. Leases expire on the database's clock. A result is written under the claim's token
first and told to Optuna after: a crash between the two is finished by whoever comes next. What a worker writes after
it lost its lease (the token no longer runs) is kept with the lost claim, and never counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update

from tuner.storage import optuna_rows
from tuner.storage.clock import database_now
from tuner.storage.engine import Database
from tuner.storage.leases import MAX_ATTEMPTS, Leases
from tuner.storage.records import Attempt, Claim, Counts, TrialResult, set_aside
from tuner.storage.roster import log_lost
from tuner.storage.schema import claims, studies
from tuner.storage.trials import DURABLE

_SET_ASIDE_BY = "tuner"


class Ledger:
    """The claims of one study. How long a lease lasts, and when it is taken back: see `Leases`."""

    def __init__(
        self,
        database: Database,
        study_id: int,
        *,
        lease_s: float | None = None,
        confirm_s: float | None = None,
        restart_grace_s: float | None = None,
    ) -> None:
        self._database = database
        self._engine = database.engine
        self._study_id = study_id
        self._mine: ColumnElement[bool] = claims.c.study_id == study_id
        self._leases = Leases(
            database.engine,
            claims.c.claim_id,
            self._mine & (claims.c.state == "running"),
            lease_s=lease_s,
            confirm_s=confirm_s,
            restart_grace_s=restart_grace_s,
        )

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a claim should renew it."""
        return self._leases.heartbeat_s

    # -- budget -----------------------------------------------------------------------------------------------------

    def set_budget(self, trials: int) -> None:
        """Let the study hold `trials` finished trials; honoured by running workers at their next claim."""
        with self._engine.begin() as connection:
            connection.execute(update(studies).where(studies.c.study_id == self._study_id).values(budget=trials))

    def counts(self) -> Counts:
        with self._engine.connect() as connection:
            return self._counts(connection)

    def _counts(self, connection: Connection) -> Counts:
        budget = connection.execute(select(studies.c.budget).where(studies.c.study_id == self._study_id)).scalar_one()
        query = select(claims.c.state, func.count()).where(self._mine).group_by(claims.c.state)
        by_state = {str(row[0]): int(row[1]) for row in connection.execute(query)}
        return Counts(budget, by_state.get("running", 0), by_state.get("finished", 0))

    def results(self, worker: str) -> int:
        """How many results of `worker` count. A trial that was set aside is nobody's."""
        theirs = self._mine & (claims.c.worker == worker) & (claims.c.state == "finished")
        with self._engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(claims).where(theirs)).scalar_one()

    # -- a worker's path: claim, write the parameters, renew, finish or give back --------------------------------------

    def claim(self, worker: str, *, token: str | None = None) -> Claim | None:
        """A trial to run, or None while running and finished trials fill the budget.

        The trial is one that waits, with its number and whatever parameters it has, or a new one without any. To ask
        again after a failure that left open what was stored, give the same `token`: it claims once.
        """
        token = token or uuid.uuid4().hex
        with self._engine.begin() as connection:
            self._lock_study(connection)
            mine = connection.execute(select(claims).where(claims.c.token == token)).first()
            if mine is not None:
                return Claim(mine.claim_id, token, mine.trial_id, mine.trial_number)
            counts = self._counts(connection)
            if counts.running + counts.finished >= counts.budget:
                return None
            taken = optuna_rows.take_waiting(connection, self._study_id)
            trial_id, number = taken or optuna_rows.create_running(connection, self._study_id)
            claim_id = self._insert_claim(
                connection, token=token, worker=worker, state="running", trial_id=trial_id, trial_number=number
            )
            return Claim(claim_id, token, trial_id, number)

    def _insert_claim(self, connection: Connection, **values: Any) -> int:
        inserted = connection.execute(
            insert(claims).values(
                study_id=self._study_id,
                claimed_at=database_now(),
                leased_until=self._leases.renewed(),
                told=False,
                **values,
            )
        )
        return optuna_rows.primary_key(inserted)

    def write_parameters(
        self, claim: Claim, parameters: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
    ) -> bool:
        """Record what the trial is run with, all at once; False when the lease was lost meanwhile.

        Under the token, so that a worker that was frozen while asking cannot change a trial that another runs by now.
        """
        with self._engine.begin() as connection:
            if self._running_row(connection, claim) is None:
                return False
            optuna_rows.write_parameters(connection, claim.trial_id, parameters, distributions)
        return True

    def renew(self, claim: Claim) -> bool:
        """Extend the lease; False when it was lost: the worker must stop, its result would not count."""
        return self._update_running(claim, leased_until=self._leases.renewed())

    def finish(self, claim: Claim, result: TrialResult) -> bool:
        """Record the result, then tell Optuna.

        False when the lease was lost meanwhile: the result is kept with the lost claim, and Optuna is told nothing.
        May be called again with the same claim, as after an outage that left open what was stored: it counts once.
        """
        text = result.to_json()
        finished = self._update_running(claim, durable=True, state="finished", result=text)
        if not finished and not self._has_recorded(claim, text):
            self._keep_late(claim, text)
            return False
        self.settle()
        return True

    def give_back(self, claim: Claim) -> None:
        """Return the ticket and put its trial back to WAITING: the next claim gets the same configuration."""
        with self._engine.begin() as connection:
            row = self._running_row(connection, claim)
            if row is not None:
                self._release(connection, row, state="returned")

    def _update_running(self, claim: Claim, *, durable: bool = False, **values: Any) -> bool:
        mine = _held_by(claim) & (claims.c.state == "running")
        with self._engine.execution_options(**{DURABLE: durable}).begin() as connection:
            return connection.execute(update(claims).where(mine).values(**values)).rowcount == 1

    def _has_recorded(self, claim: Claim, result: str) -> bool:
        mine = _held_by(claim) & (claims.c.state == "finished")
        with self._engine.connect() as connection:
            return connection.execute(select(claims.c.result).where(mine)).scalar_one_or_none() == result

    def _keep_late(self, claim: Claim, result: str) -> None:
        ended = _held_by(claim) & claims.c.state.in_(("lost", "returned")) & claims.c.result.is_(None)
        with self._engine.begin() as connection:
            connection.execute(update(claims).where(ended).values(result=result))

    def _running_row(self, connection: Connection, claim: Claim) -> Row[Any] | None:
        mine = _held_by(claim) & (claims.c.state == "running")
        return connection.execute(select(claims).where(mine).with_for_update()).first()

    # -- everybody's duty: reap and settle ---------------------------------------------------------------------------

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        """Take back the claims whose lease ran out, or all of a `worker` known to be dead. Returns how many.

        To be called often: see `Leases.confirmed`. With `state="returned"` the trial is not held against it: its worker
        was killed on purpose.
        """
        if worker is None:
            confirmed = self._leases.confirmed()
            anything = bool(confirmed)
            due = self._leases.overdue() & claims.c.claim_id.in_(confirmed)
        else:
            due = self._mine & (claims.c.state == "running") & (claims.c.worker == worker)
            anything = self._any(due)
        rows: Sequence[Row[Any]] = ()
        if anything:  # by a plain look: nearly always nothing is due, and claims need not wait for us
            with self._engine.begin() as connection:
                self._lock_study(connection)  # before any claim, as whoever claims does
                rows = connection.execute(select(claims).where(due).with_for_update(skip_locked=worker is None)).all()
                for row in rows:
                    self._release(connection, row, state=state)
            if worker is None:
                log_lost(self._engine, [(f"trial {row.trial_number}", row.worker) for row in rows])
        self.settle()
        return len(rows)

    def return_strays(self) -> int:
        """Put back trials that Optuna calls RUNNING and no claim holds. Returns how many.

        Workers leave none behind; whoever asks Optuna itself for a trial, or an older tuner, may.
        """
        held = select(claims.c.trial_id).where(
            self._mine & claims.c.trial_id.is_not(None) & claims.c.state.in_(("running", "finished"))
        )
        with self._engine.begin() as connection:
            self._lock_study(connection)  # so that no claim is being made
            return optuna_rows.put_back_all_but(connection, self._study_id, held)

    def _any(self, condition: ColumnElement[bool]) -> bool:
        with self._engine.connect() as connection:
            return connection.execute(select(claims.c.claim_id).where(condition).limit(1)).first() is not None

    def _lock_study(self, connection: Connection) -> None:
        """Hold the study's row until the transaction ends (SQLite: the transaction has the only write lock anyway)."""
        connection.execute(select(studies.c.study_id).where(studies.c.study_id == self._study_id).with_for_update())

    def _release(self, connection: Connection, row: Row[Any], *, state: str) -> None:
        """End a claim without a result and put its trial back, in the caller's transaction: both or neither."""
        connection.execute(update(claims).where(claims.c.claim_id == row.claim_id).values(state=state))
        this_trial = claims.c.trial_id == row.trial_id
        lost = connection.execute(
            select(func.count()).select_from(claims).where(this_trial & (claims.c.state == "lost"))
        ).scalar_one()
        if lost >= MAX_ATTEMPTS:
            self._insert_claim(
                connection,
                token=uuid.uuid4().hex,
                worker=_SET_ASIDE_BY,
                state="finished",
                trial_id=row.trial_id,
                trial_number=row.trial_number,
                result=set_aside(lost).to_json(),
            )
            return
        optuna_rows.put_back(connection, row.trial_id)

    def settle(self) -> None:
        """Tell Optuna every recorded result that it has not been told. Safe to run by anyone, any number of times."""
        untold = self._mine & (claims.c.state == "finished") & (claims.c.told.is_(False))
        with self._engine.connect() as connection:
            rows = connection.execute(select(claims).where(untold)).all()
        for row in rows:
            optuna_rows.tell(self._database, row.trial_id, TrialResult.from_json(row.result))
            with self._engine.begin() as connection:
                connection.execute(update(claims).where(claims.c.claim_id == row.claim_id).values(told=True))

    # -- the record ---------------------------------------------------------------------------------------------------

    def earlier_attempts(self, claim: Claim) -> int:
        """How often the claim's trial was handed back, or its worker lost, before."""
        mine = self._mine & (claims.c.trial_id == claim.trial_id)
        ended = claims.c.state.in_(("returned", "lost"))  # few, and found by the index
        with self._engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(claims).where(mine & ended)).scalar_one()

    def attempts(self, trial_number: int) -> tuple[Attempt, ...]:
        """Everyone's go at a trial, the first first, with the results that came too late to count."""
        query = select(claims).where(self._mine & (claims.c.trial_number == trial_number)).order_by(claims.c.claim_id)
        with self._engine.connect() as connection:
            return tuple(
                Attempt(
                    claim_id=row.claim_id,
                    worker=row.worker,
                    state=row.state,
                    claimed_at=row.claimed_at,
                    result=TrialResult.from_json(row.result) if row.result is not None else None,
                )
                for row in connection.execute(query)
            )


def _held_by(claim: Claim) -> ColumnElement[bool]:
    return (claims.c.claim_id == claim.claim_id) & (claims.c.token == claim.token)
