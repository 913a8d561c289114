"""Who runs which trial: claims with a lease, under an exact budget.

A claim is the budget's ticket, the trial, its lease and, at last, its result, in one row. The
budget is exact because a claim is only made while the study's row is locked and running + finished
claims are fewer than the budget; it cannot leak because there is no counter beside the rows. A
budget in time holds in the same way: it is spent by what the claims recorded. The rows are the
record, Optuna's tables a copy of it that is written in the same transaction. Where that fails, the
record is written alone, and whoever comes next tells Optuna. One thing is read from Optuna: a trial
that somebody enqueued there becomes work, once. What all claims have in common: see `Queue`.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from optuna.distributions import BaseDistribution
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Label,
    Row,
    Select,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from tuner.config import Value
from tuner.errors import StudyGoneError
from tuner.files.plain import excerpt
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.dialects import DURABLE, database_now
from tuner.storage.optuna import private as optuna_rows
from tuner.storage.queue.gpu_hours import DeviceTimes, GpuHours
from tuner.storage.queue.leased_queue import Queue, Ticket, ended_with, wait_again
from tuner.storage.records import (
    ATTEMPTS,
    Attempt,
    Claim,
    Counts,
    TrialResult,
    attempt_seconds,
    cell,
    damage_named,
    read_rows,
)
from tuner.storage.schema import TRIAL, studies, work

# What of a study decides whether one more trial may be claimed, as columns of a single statement.


ATTEMPTED = (work.c.kind == TRIAL) & (work.c.state != "waiting")
"""The rows that are attempts at trials."""


def budget_columns(study_id: int) -> list[Label[Any]]:
    """`budget`, `policy` and `created_at`, None where the study is gone, and how many claims run
    and have finished.
    """
    # By another name: the statement around these may read the claims as well.
    counted, mine = work.alias("counted"), studies.c.study_id == study_id
    there = mine & optuna_rows.has_study(studies.c.study_id)
    found = [
        select(column).where(there).scalar_subquery().label(column.name)
        for column in (studies.c.budget, studies.c.policy, studies.c.created_at)
    ]
    for state in ("running", "finished"):
        number = select(func.count()).select_from(counted)
        trials = (counted.c.study_id == study_id) & (counted.c.kind == TRIAL)
        number = number.where(trials & (counted.c.state == state))
        found.append(number.scalar_subquery().label(state))
    return found


_LIVING = ("waiting", "running", "finished")
"""States of a row that each trial has one in."""


def _next_number(seen: Row[Any]) -> int:
    """No number is given twice, not even where somebody has deleted a row of Optuna's."""
    known = [seen.last_number, *(getattr(seen, f"max_{state}") for state in _LIVING)]
    return 1 + max((number for number in known if number is not None), default=-1)


def _waits(study_id: int, trial_id: int, number: int, params: Any) -> dict[str, Any]:
    """The row of a trial that waits, to be run with whatever these are."""
    try:
        text = json.dumps(params, allow_nan=False)
    except ValueError:  # it is no configuration, and will be refused as such
        text = json.dumps(excerpt(repr(params)))
    mine = {"study_id": study_id, "kind": TRIAL, "state": "waiting", "params": text}
    return mine | {"trial_id": trial_id, "trial_number": number}


def enqueue(
    connection: Connection,
    study_id: int,
    number: int,
    params: Mapping[str, Value],
    held: Mapping[str, Value],
    notes: Mapping[str, Any],
) -> None:
    """Let a trial of this number wait in a study whose rows are locked, or not yet known."""
    trial_id = optuna_rows.create_waiting(connection, study_id, number, held, notes)
    row = _waits(study_id, trial_id, number, dict(params)) | {"notes": json.dumps(dict(notes))}
    connection.execute(insert(work).values(row))


class Ledger(Queue[Claim]):
    """The trials of one study."""

    kind = TRIAL

    def __init__(
        self,
        database: Database,
        study_id: int,
        *,
        name: str | None = None,
        made_at: float | None = None,
    ) -> None:
        super().__init__(database.engine, work.c.study_id == study_id)
        self._name = name or f"number {study_id}"
        self._study_id, self._made_at = study_id, made_at
        self._times = DeviceTimes()
        self.last_hours: GpuHours | None = None
        """The limit of device hours that was last asked for."""

    # -- budget ------------------------------------------------------------------------------------

    def set_budget(self, trials: int) -> None:
        """Let it hold `trials` finished ones; running workers honour that at their next claim."""
        mine = studies.c.study_id == self._study_id
        with self._engine.begin() as connection:
            connection.execute(update(studies).where(mine).values(budget=trials))

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
        hours, time_is_up = self._hours(seen.policy), self._is_time_up(connection, seen.policy)
        unpaid = hours is not None and hours.is_over(connection)
        return Counts(seen.budget, seen.running, seen.finished, time_is_up, unpaid)

    def _is_time_up(self, connection: Connection, policy: str | None) -> bool:
        """Whether the search has had the time that its stored policy gives it."""
        if policy is None or "search_s" not in policy:  # nobody reads the rest for it
            return False
        may_take = SearchPolicy.from_json(policy, self._name).search_s
        return may_take is not None and self._times.seconds(connection, self._mine) >= may_take

    def _hours(self, policy: str | None) -> GpuHours | None:
        """The limit of device hours that a stored policy names, with what is known of it; None
        where none does.
        """
        if policy is None or "max_gpu_s" not in policy:
            self.last_hours = None
            return None
        found = GpuHours.of(self._engine, SearchPolicy.from_json(policy, self._name), self._name)
        known = self.last_hours
        if found is None or known is None or found.limit != known.limit:
            self.last_hours = found
        return self.last_hours

    def spent_s(self, beside: Mapping[int, float] | None = None) -> float:
        """Seconds that the trials had their devices for, whatever came of it. `beside` are seconds,
        by trial number, of trials that may not be stored yet: each counts once.
        """
        with self._engine.connect() as connection:
            took = self._times.seconds(connection, self._mine)
            stored = {e.trial_number for e in self._times.of(connection, self._mine).values()}
        return took + sum(s for number, s in (beside or {}).items() if number not in stored)

    # -- a claim's row -----------------------------------------------------------------------------

    def _lock(self, connection: Connection) -> None:
        """Hold the study's row until the transaction ends (SQLite: the transaction has the only
        write lock anyway).
        """
        mine = studies.c.study_id == self._study_id
        connection.execute(select(studies.c.study_id).where(mine).with_for_update())

    def _lock_to_claim(self, connection: Connection) -> None:
        """Optuna's row of the study as well, so that who asks Optuna itself gets another number."""
        connection.execute(self._locks)

    @functools.cached_property
    def _locks(self) -> Select[Any]:
        mine = studies.c.study_id == self._study_id
        both = optuna_rows.beside_study(studies, studies.c.study_id)
        return select(studies.c.study_id).select_from(both).where(mine).with_for_update()

    def _looked_at(self) -> Sequence[Label[Any]]:
        c = work.alias("numbered").c

        def end(which: Literal["min", "max"], state: str) -> Label[Any]:
            """Of the numbers in this state: one look into the index."""
            mine = (c.study_id == self._study_id) & (c.kind == self.kind) & (c.state == state)
            query = select(getattr(func, which)(c.trial_number)).where(mine)
            return query.scalar_subquery().label(f"{which}_{state}")

        return [
            *budget_columns(self._study_id),
            *optuna_rows.numbers(self._study_id),
            end("min", "waiting"),
            *(end("max", state) for state in _LIVING),
        ]

    def _take(
        self, connection: Connection, worker: str, token: str, seen: Row[Any]
    ) -> Claim | None:
        """A trial that waits, with its number and whatever parameters it has, or a new one without
        any; None while running and finished trials fill the budget, and once the search has ended.
        """
        counts = self._counts(connection, seen)
        full = counts.running + counts.finished >= counts.budget
        if counts.ended_early or full:
            return None
        hours = self._hours(seen.policy)
        if hours is not None and not hours.may_claim(connection, worker):
            return None
        waits = seen.min_waiting is not None
        if waits or (seen.waiting is not None and self._adopt(connection)):
            return self._take_waiting(connection, worker, token)
        number = _next_number(seen)
        trial_id = optuna_rows.create_running(connection, self._study_id, number)
        made = {"study_id": self._study_id, "kind": self.kind}
        made |= {"trial_id": trial_id, "trial_number": number}
        row = made | self._begun(worker, token)
        inserted = connection.execute(insert(work).values(row))
        return Claim(optuna_rows.primary_key(inserted), token, number, trial_id)

    def _adopt(self, connection: Connection) -> bool:
        """Let the trials wait here that wait in Optuna's queue; False where all are known."""
        known = select(work.c.trial_id).where(self._mine)
        enqueued = optuna_rows.waiting(connection, self._study_id, known)
        if enqueued:
            rows = [_waits(self._study_id, e.trial_id, e.number, e.params) for e in enqueued]
            connection.execute(insert(work), rows)
        return bool(enqueued)

    def _take_waiting(self, connection: Connection, worker: str, token: str) -> Claim:
        c = work.c
        waits = self._mine & (c.state == "waiting")
        first = select(c.work_id, c.trial_id, c.trial_number).where(waits)
        row = connection.execute(first.order_by(c.trial_number).limit(1)).one()
        self._begin(connection, row.work_id, worker, token)
        optuna_rows.run(connection, self._study_id, row.trial_id, row.trial_number)
        return Claim(row.work_id, token, row.trial_number, row.trial_id)

    def _read(self, row: Row[Any]) -> Claim:
        return Claim(row.work_id, row.token, row.trial_number, row.trial_id)

    def _work_of(self, row: Row[Any]) -> str:
        return f"trial {row.trial_number}"

    def _put_back(self, connection: Connection, row: Row[Any]) -> None:
        optuna_rows.put_back(connection, row.trial_id)

    # -- what only trials have: parameters, strays, and Optuna to be told --------------------------

    def enqueue(
        self, params: Mapping[str, Value], held: Mapping[str, Value], notes: Mapping[str, Any]
    ) -> None:
        """Let a configuration wait for a worker. `held` is what Optuna's tables have of it, `notes`
        are where it comes from (see `ORIGINS`).
        """
        with self._engine.begin() as connection:
            self._lock_to_claim(connection)
            number = _next_number(self._look(connection, ""))
            enqueue(connection, self._study_id, number, params, held, notes)

    def asked(self, claim: Claim) -> Attempt | None:
        """The claimed attempt, with what it is to be run with; None when the lease was lost."""
        query = select(work).where(self._held_by(claim) & self._running)
        with damage_named(self._engine, self._study_id), self._engine.connect() as connection:
            found = read_rows(ATTEMPTS, work, connection.execute(query).all())
        return found[0] if found else None

    def write_parameters(
        self,
        claim: Claim,
        parameters: Mapping[str, Value],
        distributions: Mapping[str, BaseDistribution],
        notes: Mapping[str, Any],
    ) -> bool:
        """Record what the trial is run with, all at once; False when the lease was lost meanwhile.
        Of the notes Optuna knows: those of origins since it was enqueued, the sampler's by itself.

        Under the token, so that a worker that was frozen while asking cannot change a trial that
        another runs by now.
        """
        assert claim.trial_id is not None, "a run has its parameters"
        written = {"params": json.dumps(dict(parameters)), "notes": json.dumps(dict(notes))}
        held = self._held_by(claim) & self._running
        with self._engine.begin() as connection:
            if connection.execute(update(work).where(held).values(written)).rowcount != 1:
                return False
            optuna_rows.set_parameters(connection, claim.trial_id, parameters, distributions)
        return True

    def return_strays(self) -> int:
        """Put back trials of ours that Optuna calls RUNNING and no claim holds. Returns how many.

        Workers leave none behind; whoever asks Optuna itself for a trial gets one that waits in the
        study's queue, such as the default configuration. A trial that another program made for
        itself is left to it.
        """
        mine = select(work.c.trial_id).where(self._mine)
        held = mine.where(work.c.state.in_(("running", "finished")))
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

    def _record(self, ticket: Ticket, result: TrialResult, text: str) -> bool:
        """With what Optuna is told, in one transaction. Where that fails, as it does when somebody
        else holds Optuna's row, by itself: a result waits for nobody.
        """
        assert isinstance(ticket, Claim), "a trial is held by its claim"
        assert ticket.trial_id is not None
        held = self._held_by(ticket) & self._running
        told = update(work).where(held).values(told=True, **ended_with(text))
        try:
            with self._engine.execution_options(**{DURABLE: True}).begin() as connection:
                if connection.execute(told).rowcount != 1:
                    return False
                optuna_rows.tell(connection, ticket.trial_id, result)
        except DBAPIError:
            return super()._record(ticket, result, text)
        return True

    @property
    def _untold(self) -> ColumnElement[bool]:
        return self._mine & (work.c.state == "finished") & work.c.told.is_(False)

    def _tell_one(self, due: ColumnElement[bool]) -> bool:
        """Tell the first result of these that nobody else is telling; False where there is none.

        After an outage hundreds of workers store results at once. Each telling all of them would
        wait for all the others.
        """
        query = select(work).where(due).limit(1).with_for_update(skip_locked=True)
        with self._engine.begin() as connection:
            row = connection.execute(query).first()
            if row is None:
                return False
            with damage_named(self._engine, self._study_id):
                (attempt,) = read_rows(ATTEMPTS, work, [row])
                assert attempt.result is not None, "it has finished"
                optuna_rows.tell(connection, row.trial_id, attempt.result)
            connection.execute(update(work).where(work.c.work_id == row.work_id).values(told=True))
        return True

    def reopen(self, is_due: Callable[[TrialResult], bool]) -> int:
        """Let the finished trials whose results are due wait again, with their numbers, parameters
        and seeds; what they came to stays with their attempts. Returns how many.

        Nobody may be at work on the study: to others, what has a result never changes.
        """
        c, reopened = work.c, 0
        finished = self._mine & (c.state == "finished")
        query = select(work).where(finished).order_by(c.trial_number)
        with damage_named(self._engine, self._study_id), self._engine.begin() as connection:
            self._lock(connection)
            for row in connection.execute(query.with_for_update()).all():
                with cell("tuner_work.result", row.trial_number):
                    result = TrialResult.from_json(row.result)
                if not is_due(result):
                    continue
                over = {"state": "returned", "had_s": attempt_seconds(result.recorded)}
                connection.execute(update(work).where(c.work_id == row.work_id).values(over))
                wait_again(connection, row)
                optuna_rows.put_back(connection, row.trial_id)
                optuna_rows.forget(connection, row.trial_id, result)
                reopened += 1
        return reopened

    # -- the record --------------------------------------------------------------------------------

    def earlier_attempts(self, claim: Claim) -> int:
        """How often the claim's trial was handed back, or its worker lost, before."""
        mine = self._mine & (work.c.trial_number == claim.trial_number)
        ended = work.c.state.in_(("returned", "lost"))  # few, and found by the index
        query = select(func.count()).select_from(work).where(mine & ended)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def attempts(self, trial_number: int) -> tuple[Attempt, ...]:
        """Everyone's go at a trial, the first first,
        with the results that came too late to count.
        """
        of_it = self._mine & (work.c.trial_number == trial_number) & (work.c.state != "waiting")
        query = select(work).where(of_it).order_by(work.c.work_id)
        with damage_named(self._engine, self._study_id), self._engine.connect() as connection:
            found = read_rows(ATTEMPTS, work, connection.execute(query).all())
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


def stints(engine: Engine, study_id: int, *, trial_number: int | None = None) -> tuple[Stint, ...]:
    """Who was at the trials of a study, or at one of them, in order.

    Of a lost one it is known only that its lease had not run out, nor had its worker claimed
    another trial.

    Raises:
        StorageError: a row of the study is damaged.
    """
    query = select(work).where(ATTEMPTED & (work.c.study_id == study_id)).order_by(work.c.work_id)
    with engine.connect() as connection:
        now = float(connection.execute(select(database_now())).scalar_one())
        rows = connection.execute(query).all()
    next_claim: dict[str, float] = {}
    found = []
    with damage_named(engine, study_id):
        for row in reversed(read_rows(ATTEMPTS, work, rows)):
            recorded = row.result.recorded if row.result is not None else Recorded()
            if recorded.set_aside:
                continue  # our own word on a trial whose workers were lost, not a worker's time
            began, ended = row.claimed_at, now if row.ended_at is None else row.ended_at
            if row.state == "lost":
                ended = min(ended, row.leased_until)
            ended = max(began, min(ended, next_claim.get(row.worker, now)))
            next_claim[row.worker] = began
            if trial_number in (None, row.trial_number):
                how = recorded.stopped_by
                found.append(Stint(row.trial_number, row.worker, row.state, began, ended, how))
    return tuple(reversed(found))
