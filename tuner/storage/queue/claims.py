"""Who runs which trial: claims with a lease, under an exact budget.

A claim is the budget's ticket, the trial, its lease and, at last, its result, in one row. The
budget is exact because a claim is only made while the study's row is locked and running + finished
claims are fewer than the budget; it cannot leak because there is no counter beside the rows. A
budget in time holds in the same way: it is spent by what the finished claims recorded. A search
that stopped by itself gives no claim any more. The trial is taken in the same transaction: a worker
that dies leaves no trial behind that nobody claims. A result is written under the claim's token
first and told to Optuna after: a crash between the two is finished by whoever comes next. What all
claims have in common: see `Queue`.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution
from sqlalchemy import ColumnElement, Connection, Engine, Label, Row, func, insert, select, update

from tuner.errors import StudyGoneError
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.queue.gpu_hours import FinishedTimes, GpuHours
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.records import (
    ATTEMPTS,
    Attempt,
    Claim,
    Counts,
    cell,
    damage_named,
    read_rows,
)
from tuner.storage.schema import claims, studies

# What of a study decides whether one more trial may be claimed, as columns of a single statement.


def budget_columns(study_id: int) -> list[Label[Any]]:
    """`budget`, `policy` and `created_at`, None where the study is gone, and how many claims run
    and have finished.
    """
    # By another name: the statement around these may read the claims as well.
    counted, mine = claims.alias("counted"), studies.c.study_id == study_id
    there = mine & optuna_rows.has_study(studies.c.study_id)
    found = [
        select(column).where(there).scalar_subquery().label(column.name)
        for column in (studies.c.budget, studies.c.policy, studies.c.created_at)
    ]
    for state in ("running", "finished"):
        number = select(func.count()).select_from(counted)
        number = number.where((counted.c.study_id == study_id) & (counted.c.state == state))
        found.append(number.scalar_subquery().label(state))
    return found


def search_s(seen: Row[Any], study: str) -> float | None:
    """The seconds that the stored policy of the study of this name gives the search; None: as many
    as it takes.
    """
    said = seen.policy
    return SearchPolicy.from_json(said, study).search_s if said and "search_s" in said else None


def limits_gpu_hours(policy: str | None) -> bool:
    """Whether a stored policy limits them, without reading the rest of it."""
    return policy is not None and "max_gpu_s" in policy


# How long the finished claims of a study had their devices, each read once: it never changes.


class SpentTime:
    """Of the claims that `mine` selects."""

    def __init__(self, mine: ColumnElement[bool], engine: Engine, name: str) -> None:
        """`name` is the study's."""
        self._engine, self._name = engine, name
        self.last_hours: GpuHours | None = None
        """The limit of device hours that was last asked for."""
        self._mine, self._times = mine, FinishedTimes()

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
        if not limits_gpu_hours(policy):
            self.last_hours = None
            return None
        found = GpuHours.of(self._engine, SearchPolicy.from_json(policy, self._name), self._name)
        known = self.last_hours
        if found is None or known is None or found.limit != known.limit:
            self.last_hours = found
        return self.last_hours

    def seconds(self, connection: Connection, beside: Mapping[int, float] | None = None) -> float:
        """Of all of them. `beside` are seconds, by trial number, of trials that may not be stored
        yet: each counts once.
        """
        took = self._times.of(connection, claims.c.claim_id, self._mine).values()
        stored = {each.trial_number for each in took}
        more = (s for number, s in (beside or {}).items() if number not in stored)
        return sum(each.whole_s for each in took) + sum(more)


_SET_ASIDE_BY = "tuner"


class Ledger(Queue[Claim, Claim]):
    """The claims of one study."""

    def __init__(
        self,
        database: Database,
        study_id: int,
        *,
        name: str | None = None,
        made_at: float | None = None,
    ) -> None:
        super().__init__(database.engine, claims.c.claim_id, claims.c.study_id == study_id)
        self._name = name or f"number {study_id}"
        self._study_id, self._made_at = study_id, made_at
        self.spent = SpentTime(self._mine, database.engine, self._name)

    # -- budget ------------------------------------------------------------------------------------

    def set_budget(self, trials: int) -> None:
        """Let it hold `trials` finished ones; running workers honour that at their next claim."""
        with self._engine.begin() as connection:
            connection.execute(
                update(studies).where(studies.c.study_id == self._study_id).values(budget=trials)
            )

    def counts(self) -> Counts:
        """Trials: planned, running and finished; nothing counts but what has a claim.

        Raises:
            StudyGoneError: the study was deleted.
        """
        with self._engine.connect() as connection:
            return self._counts(connection)

    def _counts(self, connection: Connection, seen: Row[Any] | None = None) -> Counts:
        if seen is None:
            seen = connection.execute(select(*budget_columns(self._study_id))).one()
        remade = self._made_at is not None and seen.created_at != self._made_at
        if seen.budget is None or remade:
            raise StudyGoneError.of(self._name)
        with damage_named(self._engine, self._study_id), cell("tuner_studies.budget"):
            operator.index(seen.budget)
        return Counts(
            seen.budget,
            seen.running,
            seen.finished,
            time_is_up=self.spent.is_up(connection, seen),
            unpaid=self.spent.is_unpaid(connection, seen),
        )

    def spent_s(self, beside: Mapping[int, float] | None = None) -> float:
        """Seconds that the finished trials had their devices for (see `SpentTime`)."""
        with self._engine.connect() as connection:
            return self.spent.seconds(connection, beside)

    # -- a claim's row -----------------------------------------------------------------------------

    def _lock(self, connection: Connection) -> None:
        """Hold the study's row until the transaction ends (SQLite: the transaction has the only
        write lock anyway).
        """
        connection.execute(
            select(studies.c.study_id).where(studies.c.study_id == self._study_id).with_for_update()
        )

    def _lock_to_claim(self, connection: Connection) -> None:
        """Optuna's row of the study as well, so that who asks Optuna itself gets another number."""
        mine = studies.c.study_id == self._study_id
        both = optuna_rows.beside_study(studies, studies.c.study_id)
        connection.execute(
            select(studies.c.study_id).select_from(both).where(mine).with_for_update()
        )

    def _looked_at(self) -> Sequence[Label[Any]]:
        return [*budget_columns(self._study_id), *optuna_rows.numbers(self._study_id)]

    def _take(
        self, connection: Connection, worker: str, token: str, seen: Row[Any]
    ) -> Claim | None:
        """A trial that waits, with its number and whatever parameters it has, or a new one without
        any; None while running and finished trials fill the budget, and once the search has ended.
        """
        counts = self._counts(connection, seen)
        full = counts.running + counts.finished >= counts.budget
        if counts.ended_early or full or not self.spent.pays(connection, seen, worker):
            return None
        taken = None
        if seen.waiting is not None:
            taken = optuna_rows.take_waiting(connection, self._study_id)
        made = taken or optuna_rows.create_running(connection, self._study_id, seen)
        trial_id, number = made
        claim_id = self._insert_claim(
            connection,
            token=token,
            worker=worker,
            state="running",
            trial_id=trial_id,
            trial_number=number,
        )
        return Claim(claim_id, token, trial_id, number)

    def _insert_claim(self, connection: Connection, **values: Any) -> int:
        inserted = connection.execute(
            insert(claims).values(
                study_id=self._study_id,
                claimed_at=database_now(),
                leased_until=self._renewed(),
                told=False,
                **values,
            )
        )
        return optuna_rows.primary_key(inserted)

    def _read(self, row: Row[Any]) -> Claim:
        return Claim(row.claim_id, row.token, row.trial_id, row.trial_number)

    def _held_by(self, ticket: Claim) -> ColumnElement[bool]:
        return (claims.c.claim_id == ticket.claim_id) & (claims.c.token == ticket.token)

    def _work_of(self, row: Row[Any]) -> str:
        return f"trial {row.trial_number}"

    def _keep_late(self, ticket: Claim, result: str) -> None:
        ended = claims.c.state.in_(("lost", "returned")) & claims.c.result.is_(None)
        mine = self._held_by(ticket) & ended
        with self._engine.begin() as connection:
            connection.execute(update(claims).where(mine).values(result=result))

    def _end(self, connection: Connection, row: Row[Any], state: str) -> int:
        mine = claims.c.claim_id == row.claim_id
        connection.execute(update(claims).where(mine).values(state=state))
        lost = (claims.c.trial_id == row.trial_id) & (claims.c.state == "lost")
        query = select(func.count()).select_from(claims).where(lost)
        return connection.execute(query).scalar_one()

    def _put_back(self, connection: Connection, row: Row[Any]) -> None:
        optuna_rows.put_back(connection, row.trial_id)

    def _set_aside(self, connection: Connection, row: Row[Any], result: str) -> None:
        self._insert_claim(
            connection,
            token=uuid.uuid4().hex,
            worker=_SET_ASIDE_BY,
            state="finished",
            trial_id=row.trial_id,
            trial_number=row.trial_number,
            result=result,
        )

    # -- what only trials have: parameters, strays, and Optuna to be told --------------------------

    def write_parameters(
        self,
        claim: Claim,
        parameters: Mapping[str, Any],
        distributions: Mapping[str, BaseDistribution],
    ) -> bool:
        """Record what the trial is run with, all at once; False when the lease was lost meanwhile.

        Under the token, so that a worker that was frozen while asking cannot change a trial that
        another runs by now.
        """
        with self._engine.begin() as connection:
            if self._running_row(connection, claim) is None:
                return False
            optuna_rows.write_parameters(connection, claim.trial_id, parameters, distributions)
        return True

    def return_strays(self) -> int:
        """Put back trials of ours that Optuna calls RUNNING and no claim holds. Returns how many.

        Workers leave none behind; whoever asks Optuna itself for a trial gets one that waits in the
        study's queue, such as the default configuration. A trial that another program made for
        itself is left to it.
        """
        mine = select(claims.c.trial_id).where(self._mine & claims.c.trial_id.is_not(None))
        held = mine.where(claims.c.state.in_(("running", "finished")))
        with self._engine.begin() as connection:
            self._lock(connection)  # so that no claim is being made
            return optuna_rows.put_back_strays(connection, self._study_id, held, mine)

    def settle(self) -> None:
        """Tell Optuna each result it was not told, whatever others told it. Anyone may do so, any
        number of times; those who do it at once share the work.
        """
        if self._any(self._untold):
            while self._tell_one(self._untold):
                pass

    def _settle_own(self, ticket: Claim) -> None:
        self._tell_one(self._untold & (claims.c.claim_id == ticket.claim_id))

    @property
    def _untold(self) -> ColumnElement[bool]:
        return self._mine & (claims.c.state == "finished") & claims.c.told.is_(False)

    def _tell_one(self, due: ColumnElement[bool]) -> bool:
        """Tell the first result of these that nobody else is telling; False where there is none.

        After an outage hundreds of workers store results at once. Each telling all of them would
        wait for all the others.
        """
        query = select(claims).where(due).limit(1).with_for_update(skip_locked=True)
        with self._engine.begin() as connection:
            row = connection.execute(query).first()
            if row is None:
                return False
            with damage_named(self._engine, self._study_id):
                (attempt,) = read_rows(ATTEMPTS, claims, [row])
                assert attempt.result is not None, "it has finished"
                optuna_rows.tell(connection, row.trial_id, attempt.result)
            connection.execute(
                update(claims).where(claims.c.claim_id == row.claim_id).values(told=True)
            )
        return True

    # -- the record --------------------------------------------------------------------------------

    def earlier_attempts(self, claim: Claim) -> int:
        """How often the claim's trial was handed back, or its worker lost, before."""
        mine = self._mine & (claims.c.trial_id == claim.trial_id)
        ended = claims.c.state.in_(("returned", "lost"))  # few, and found by the index
        with self._engine.connect() as connection:
            return connection.execute(
                select(func.count()).select_from(claims).where(mine & ended)
            ).scalar_one()

    def attempts(self, trial_number: int) -> tuple[Attempt, ...]:
        """Everyone's go at a trial, the first first,
        with the results that came too late to count.
        """
        query = (
            select(claims)
            .where(self._mine & (claims.c.trial_number == trial_number))
            .order_by(claims.c.claim_id)
        )
        with damage_named(self._engine, self._study_id), self._engine.connect() as connection:
            found = read_rows(ATTEMPTS, claims, connection.execute(query).all())
            for each in found:
                _ = each.result  # read now, while it can be said whose it is
            return tuple(found)


# When which worker was at which trial, as the ledger's claims tell it.


@dataclass(frozen=True, slots=True)
class Stint:
    """One worker's time with a trial, in seconds since 1970 on the database's clock.

    `state` is that of the claim: running, finished, returned (handed back after an interruption) or
    lost (its worker was not heard of in time). `stopped_by` is how the training ended; where a lost
    one has it, its result was late.
    """

    trial_number: int
    worker: str
    state: str
    began: float
    ended: float
    stopped_by: str | None


def _took_s(recorded: Recorded) -> float | None:
    """How long a worker had a trial: with all its seeds
    and repeated runs, where that was recorded.
    """
    if recorded.attempt_s is not None:
        return recorded.attempt_s
    return None if recorded.total_s is None else recorded.total_s + (recorded.suggest_s or 0.0)


def stints(engine: Engine, study_id: int, *, trial_number: int | None = None) -> tuple[Stint, ...]:
    """Who was at the trials of a study, or at one of them, in order.

    When one ended is not recorded. That of a finished one follows from what it took in all; of a
    returned or lost one it is known only that its lease had not run out, nor had its worker claimed
    another trial.

    Raises:
        StorageError: a row of the study is damaged.
    """
    c = claims.c
    query = select(claims).where(c.study_id == study_id).order_by(c.claim_id)
    with engine.connect() as connection:
        now = float(connection.execute(select(database_now())).scalar_one())
        rows = connection.execute(query).all()
    next_claim: dict[str, float] = {}
    found = []
    leases = [row.leased_until for row in rows]
    with damage_named(engine, study_id):
        attempts = read_rows(ATTEMPTS, claims, rows)
        for each in attempts:
            _ = each.result  # read now, while it can be said whose it is
    for row, leased_until in zip(reversed(attempts), reversed(leases), strict=True):
        recorded = row.result.recorded if row.result is not None else Recorded()
        took = _took_s(recorded)
        if row.state == "running":
            ended = now
        else:
            known = leased_until if took is None else row.claimed_at + took
            ended = min(known, next_claim.get(row.worker, now), now)
        if recorded.set_aside:
            continue  # our own word on a trial whose workers were lost, not a worker's time
        next_claim[row.worker] = row.claimed_at
        if trial_number in (None, row.trial_number):
            began, ended = row.claimed_at, max(float(ended), row.claimed_at)
            how = recorded.stopped_by
            found.append(Stint(row.trial_number, row.worker, row.state, began, ended, how))
    return tuple(reversed(found))
