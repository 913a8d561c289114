"""When which worker was at which trial, as the ledger's claims tell it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, select

from tuner.record import Recorded
from tuner.storage.damage import damage_named, read_rows
from tuner.storage.database_clock import database_now
from tuner.storage.records import ATTEMPTS
from tuner.storage.schema import claims


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
    with damage_named(engine, study_id):
        return _stints(engine, study_id, trial_number)


def _stints(engine: Engine, study_id: int, trial_number: int | None) -> tuple[Stint, ...]:
    c = claims.c
    query = select(claims).where(c.study_id == study_id).order_by(c.claim_id)
    with engine.connect() as connection:
        now = float(connection.execute(select(database_now())).scalar_one())
        rows = connection.execute(query).all()
    next_claim: dict[str, float] = {}
    found = []
    leases = [row.leased_until for row in rows]
    attempts = read_rows(ATTEMPTS, claims, rows)
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
