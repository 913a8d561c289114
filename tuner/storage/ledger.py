"""Who runs which trial: claims with a lease, under an exact budget.

A claim is the budget's ticket, the trial, its lease and, at last, its result, in one row. The budget is exact because a
claim is only made while the study's row is locked and running + finished claims are fewer than the budget; it cannot
leak because there is no counter beside the rows. The trial is taken in the same transaction: a worker that dies leaves
no trial behind that nobody claims. Leases expire on the database's clock. A result is written under the claim's token
first and told to Optuna after: a crash between the two is finished by whoever comes next. What a worker writes after
it lost its lease (the token no longer runs) is kept with the lost claim, and never counted.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages._rdb.models import (
    StudyModel,
    TrialModel,
    TrialParamModel,
    TrialSystemAttributeModel,
    TrialUserAttributeModel,
)
from optuna.trial import TrialState
from sqlalchemy import ColumnElement, Connection, CursorResult, Row, Table, case, delete, func, insert, select, update

from tuner.storage.clock import database_now, database_started
from tuner.storage.engine import Database
from tuner.storage.schema import claims, studies

LEASE_S = 60.0
"""How long a worker may be silent before its trial is given to another."""
MAX_ATTEMPTS = 3
"""A trial whose worker was lost this many times is set aside as failed: it may be what kills them."""

CONFIRM_SHARE = 0.5
"""A lease that ran out is watched for this share of a lease before it is taken back, for a sign of life."""

HEARTBEATS_PER_LEASE = 6
"""A worker renews its lease this often before it would run out."""

_SET_ASIDE_BY = "tuner"
_optuna_studies: Table = StudyModel.__table__
_trials: Table = TrialModel.__table__
_parameters: Table = TrialParamModel.__table__
_attributes: Table = TrialUserAttributeModel.__table__
_system_attributes: Table = TrialSystemAttributeModel.__table__


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one trial. `token` fences it: only the holder of a running token may write the result."""

    claim_id: int
    token: str
    trial_id: int
    trial_number: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Claims of a study. `finished` is what counts toward the budget for good, `set_aside` how many of these were not
    run to a result because they cost too many workers their lives.
    """

    budget: int
    running: int
    finished: int
    set_aside: int = 0

    @property
    def left(self) -> int:
        return max(0, self.budget - self.finished)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial became: Optuna state, objective values (complete trials only) and flat user attributes."""

    state: TrialState
    values: tuple[float, ...] | None
    attributes: dict[str, Any]
    constraints: dict[str, float] = field(default_factory=dict)
    """As of `trial.set_constraint`: above 0 is a limit that the trial does not keep."""

    def to_json(self) -> str:
        data = {"state": self.state.name, "values": self.values, "attributes": self.attributes}
        return json.dumps(data | ({"constraints": self.constraints} if self.constraints else {}))

    @staticmethod
    def from_json(text: str) -> TrialResult:
        data = json.loads(text)
        values = data["values"]
        return TrialResult(
            TrialState[data["state"]],
            tuple(values) if values else None,
            data["attributes"],
            data.get("constraints", {}),
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One worker's go at a trial. `claimed_at` is in seconds since 1970, on the database's clock.

    `state` is running, finished (its result counts), returned (handed back) or lost (its lease ran out, or it died).
    A lost attempt may have a result too: it came too late to count.
    """

    claim_id: int
    worker: str
    state: str
    claimed_at: float
    result: TrialResult | None

    @property
    def late(self) -> bool:
        return self.result is not None and self.state != "finished"


class Ledger:
    """The claims of one study.

    A lease lasts `lease_s` seconds (LEASE_S). One that ran out is taken back by who has watched it stay so for
    `confirm_s` seconds (half a lease): after an outage, or the sleep of a whole machine, every lease has run out, and
    living workers are about to renew theirs. For the same reason, claims from before the server's start are left alone
    within `restart_grace_s` seconds (half a lease) of it.
    """

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
        self._lease_s = LEASE_S if lease_s is None else lease_s
        self._confirm_s = self._lease_s * CONFIRM_SHARE if confirm_s is None else confirm_s
        self._restart_grace_s = self._lease_s / 2 if restart_grace_s is None else restart_grace_s
        self._looked_at = 0.0
        self._overdue_since: dict[tuple[int, float], float] = {}

    @property
    def heartbeat_s(self) -> float:
        """How often, in seconds, the holder of a claim should renew it."""
        return self._lease_s / HEARTBEATS_PER_LEASE

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
        ours = func.sum(case((claims.c.worker == _SET_ASIDE_BY, 1), else_=0))
        query = select(claims.c.state, func.count(), ours).where(claims.c.study_id == self._study_id)
        by_state = {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(query.group_by(claims.c.state))}
        running, (finished, set_aside) = by_state.get("running", (0, 0))[0], by_state.get("finished", (0, 0))
        return Counts(budget, running, finished, set_aside)

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
            trial_id, number = self._take_waiting(connection) or self._create_trial(connection)
            claim_id = self._insert_claim(
                connection, token=token, worker=worker, state="running", trial_id=trial_id, trial_number=number
            )
            return Claim(claim_id, token, trial_id, number)

    def _take_waiting(self, connection: Connection) -> tuple[int, int] | None:
        waiting = (_trials.c.study_id == self._study_id) & (_trials.c.state == TrialState.WAITING)
        query = select(_trials.c.trial_id, _trials.c.number).where(waiting).order_by(_trials.c.number).limit(10)
        for trial_id, number in connection.execute(query).all():
            taken = connection.execute(
                update(_trials)
                .where((_trials.c.trial_id == trial_id) & (_trials.c.state == TrialState.WAITING))
                .values(state=TrialState.RUNNING, datetime_start=_utc_now())
            )
            if taken.rowcount == 1:  # else somebody took it through Optuna itself
                return int(trial_id), int(number)
        return None

    def _create_trial(self, connection: Connection) -> tuple[int, int]:
        """As Optuna creates one: numbered while the study's row is locked, here in the claim's own transaction."""
        study = _optuna_studies.c.study_id == self._study_id
        connection.execute(select(_optuna_studies.c.study_id).where(study).with_for_update())
        existing = select(func.count()).select_from(_trials).where(_trials.c.study_id == self._study_id)
        number = int(connection.execute(existing).scalar_one())
        inserted = connection.execute(
            insert(_trials).values(
                study_id=self._study_id, number=number, state=TrialState.RUNNING, datetime_start=_utc_now()
            )
        )
        return _primary_key(inserted), number

    def _insert_claim(self, connection: Connection, **values: Any) -> int:
        now = database_now()
        inserted = connection.execute(
            insert(claims).values(
                study_id=self._study_id, claimed_at=now, leased_until=now + self._lease_s, told=False, **values
            )
        )
        return _primary_key(inserted)

    def write_parameters(
        self, claim: Claim, parameters: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
    ) -> bool:
        """Record what the trial is run with, all at once; False when the lease was lost meanwhile.

        Under the token, so that a worker that was frozen while asking cannot change a trial that another runs by now.
        """
        with self._engine.begin() as connection:
            if self._running_row(connection, claim) is None:
                return False
            known = select(_parameters.c.param_name).where(_parameters.c.trial_id == claim.trial_id)
            there = set(connection.execute(known).scalars())
            rows = [
                {
                    "trial_id": claim.trial_id,
                    "param_name": name,
                    "param_value": distributions[name].to_internal_repr(value),
                    "distribution_json": distribution_to_json(distributions[name]),
                }
                for name, value in parameters.items()
                if name not in there
            ]
            if rows:
                connection.execute(insert(_parameters), rows)
        return True

    def renew(self, claim: Claim) -> bool:
        """Extend the lease; False when it was lost: the worker must stop, its result would not count."""
        return self._update_running(claim, leased_until=database_now() + self._lease_s)

    def finish(self, claim: Claim, result: TrialResult) -> bool:
        """Record the result, then tell Optuna.

        False when the lease was lost meanwhile: the result is kept with the lost claim, and Optuna is told nothing.
        May be called again with the same claim, as after an outage that left open what was stored: it counts once.
        """
        text = result.to_json()
        if not self._update_running(claim, state="finished", result=text) and not self._has_recorded(claim, text):
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

    def _update_running(self, claim: Claim, **values: Any) -> bool:
        mine = _held_by(claim) & (claims.c.state == "running")
        with self._engine.begin() as connection:
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

        To be called often, at least once in `confirm_s`: a lease that ran out is taken back by a later call than the
        one that sees it first. With `state="returned"` the trial is not held against it: its worker was killed on
        purpose.
        """
        due = (claims.c.study_id == self._study_id) & (claims.c.state == "running")
        if worker is None:
            confirmed = self._confirmed()
            anything = bool(confirmed)
            due &= self._overdue() & claims.c.claim_id.in_(confirmed)
        else:
            due &= claims.c.worker == worker
            anything = self._any(due)
        taken = 0
        if anything:  # by a plain look: nearly always nothing is due, and claims need not wait for us
            with self._engine.begin() as connection:
                self._lock_study(connection)  # before any claim, as whoever claims does
                rows = connection.execute(select(claims).where(due).with_for_update(skip_locked=True)).all()
                for row in rows:
                    self._release(connection, row, state=state)
                taken = len(rows)
        self.settle()
        return taken

    def return_strays(self) -> int:
        """Put back trials that Optuna calls RUNNING and no claim holds. Returns how many.

        Workers leave none behind; whoever asks Optuna itself for a trial, or an older tuner, may.
        """
        held = select(claims.c.trial_id).where(
            (claims.c.study_id == self._study_id)
            & claims.c.trial_id.is_not(None)
            & claims.c.state.in_(("running", "finished"))
        )
        strays = (_trials.c.study_id == self._study_id) & (_trials.c.state == TrialState.RUNNING)
        with self._engine.begin() as connection:
            self._lock_study(connection)  # so that no claim is being made
            strays &= _trials.c.trial_id.not_in(held)
            return connection.execute(update(_trials).where(strays).values(state=TrialState.WAITING)).rowcount

    def _confirmed(self) -> list[int]:
        """Claims that this ledger has seen overdue, and not renewed, for long enough; on this machine's own clock."""
        now = time.monotonic()
        # Who could not look, or did not, has not seen that nobody renewed.
        known = self._overdue_since if now - self._looked_at <= self._confirm_s else {}
        self._overdue_since = {}
        running = (claims.c.study_id == self._study_id) & (claims.c.state == "running") & self._overdue()
        with self._engine.connect() as connection:
            rows = connection.execute(select(claims.c.claim_id, claims.c.leased_until).where(running)).all()
        since = {(row.claim_id, row.leased_until): known.get((row.claim_id, row.leased_until), now) for row in rows}
        self._looked_at, self._overdue_since = now, since
        return [claim_id for (claim_id, _), at in since.items() if now - at >= self._confirm_s]

    def _overdue(self) -> ColumnElement[bool]:
        return overdue(claims, self._restart_grace_s)

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
        connection.execute(
            update(_trials)
            .where((_trials.c.trial_id == row.trial_id) & (_trials.c.state == TrialState.RUNNING))
            .values(state=TrialState.WAITING)
        )

    def settle(self) -> None:
        """Tell Optuna every recorded result that it has not been told. Safe to run by anyone, any number of times."""
        untold = (claims.c.study_id == self._study_id) & (claims.c.state == "finished") & (claims.c.told.is_(False))
        with self._engine.connect() as connection:
            rows = connection.execute(select(claims).where(untold)).all()
        for row in rows:
            self._tell(row)

    def _tell(self, row: Row[Any]) -> None:
        result = TrialResult.from_json(row.result)
        with self._engine.begin() as connection:
            locked = connection.execute(
                select(_trials.c.state).where(_trials.c.trial_id == row.trial_id).with_for_update()
            ).scalar_one()
            if not locked.is_finished():
                constraints = {f"constraints:{key}": value for key, value in result.constraints.items()}
                _write(connection, _attributes, row.trial_id, result.attributes)
                _write(connection, _system_attributes, row.trial_id, constraints)  # where set_constraint puts them
        if not locked.is_finished():
            values = list(result.values) if result.values is not None else None
            with contextlib.suppress(UpdateFinishedTrialError):  # another settler was faster
                self._database.optuna.set_trial_state_values(row.trial_id, state=result.state, values=values)
        with self._engine.begin() as connection:
            connection.execute(update(claims).where(claims.c.claim_id == row.claim_id).values(told=True))

    # -- the record ---------------------------------------------------------------------------------------------------

    def earlier_attempts(self, claim: Claim) -> int:
        """How often the claim's trial was handed back, or its worker lost, before."""
        mine = (claims.c.study_id == self._study_id) & (claims.c.trial_id == claim.trial_id)
        ended = claims.c.state.in_(("returned", "lost"))  # few, and found by the index
        with self._engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(claims).where(mine & ended)).scalar_one()

    def attempts(self, trial_number: int) -> tuple[Attempt, ...]:
        """Everyone's go at a trial, the first first, with the results that came too late to count."""
        query = (
            select(claims)
            .where((claims.c.study_id == self._study_id) & (claims.c.trial_number == trial_number))
            .order_by(claims.c.claim_id)
        )
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


def overdue(table: Table, restart_grace_s: float) -> ColumnElement[bool]:
    """Leases of `table` that ran out, but for those that may have done so while the server was down.

    Nobody could renew then: what was claimed before is left alone for `restart_grace_s` seconds after the start.
    """
    now, started = database_now(), database_started()
    fair = (table.c.claimed_at >= started) | (now - started >= restart_grace_s)
    return (table.c.leased_until < now) & fair


def set_aside(lost: int) -> TrialResult:
    """The result of what cost `lost` workers their lives."""
    reason = f"set aside: its worker was lost {lost} times"
    return TrialResult(TrialState.FAIL, None, {"stopped_by": "error", "failure": reason, "set_aside": True})


def _held_by(claim: Claim) -> ColumnElement[bool]:
    return (claims.c.claim_id == claim.claim_id) & (claims.c.token == claim.token)


def _primary_key(inserted: CursorResult[Any]) -> int:
    key = inserted.inserted_primary_key
    assert key is not None, "an insert has a primary key"
    return int(key[0])


def _utc_now() -> datetime:
    """As Optuna stores times: UTC, without saying so."""
    return datetime.now(UTC).replace(tzinfo=None)


def _write(connection: Connection, table: Table, trial_id: int, attributes: Mapping[str, Any]) -> None:
    """Set a trial's attributes, all in one statement: one by one they would cost a transaction each."""
    if not attributes:
        return
    connection.execute(delete(table).where((table.c.trial_id == trial_id) & table.c.key.in_(list(attributes))))
    rows = [{"trial_id": trial_id, "key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
    connection.execute(insert(table), rows)
