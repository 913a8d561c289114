"""A limit of device time that several studies share (`--max-gpu-hours`): who may still spend how
much of it.

Whoever is about to train asks for a grant, under a lock: what is left is shared by the workers that
have none. So what has been spent and what is granted never come to more than the limit, whatever
happens on how many machines. A grant ends with its training; what that took is counted, and the
rest is free again. A worker that died had its device until it was last heard of, or until its next
life sign was due at most, and never for longer than its grant: so much is counted.

What each study was granted, and spent, is kept with it (`Account`). So nothing is forgotten where
others come to share the limit, or one of them is deleted. Who changes any of it holds the rows of
all of them: whoever shares one of these studies waits meanwhile, whichever others it knows of.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Column, ColumnElement, Connection, Engine, select

from tuner.files.plain import Strict
from tuner.spec.policy import SearchPolicy
from tuner.storage.dialects import database_now
from tuner.storage.optuna.private import ids_of, read_notes, write_note
from tuner.storage.queue.leased_queue import HEARTBEATS_PER_LEASE, LEASE_S
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.storage.records import TrialResult, attempt_seconds, cell, damage_named, device_seconds
from tuner.storage.schema import claims, studies, verifications, workers

# Seconds for which some studies had devices, of all that has ended: with a result or without.


_Work = tuple[int, int] | str
"""A trial, as study and number; of what is none, or is not known any more, the token."""


@dataclass(frozen=True, slots=True)
class _Took:
    """What a result says: of all of it, and of the attempt that came to it."""

    work: _Work
    trial_number: int
    whole_s: float
    attempt_s: float


class FinishedTimes:
    """What finished claims took. Results are read once: they never change."""

    def __init__(self) -> None:
        self._took: dict[tuple[str, int], _Took] = {}

    def of(
        self, connection: Connection, key: Column[int], mine: ColumnElement[bool]
    ) -> dict[int, _Took]:
        """Of those rows of a table that are `mine`, by their `key`."""
        c, table = key.table.c, key.table.name
        finished = select(key).where(mine & (c.state == "finished"))
        there = set(connection.execute(finished).scalars())
        if new := sorted(each for each in there if (table, each) not in self._took):
            query = select(key, c.study_id, c.trial_number, c.result).where(key.in_(new))
            for number, study_id, trial_number, text in connection.execute(query):
                named = damage_named(connection.engine, study_id)
                with named, cell(f"{table}.result", trial_number):
                    recorded = TrialResult.from_json(text).recorded
                self._took[table, number] = _Took(
                    work=(study_id, trial_number) if table == claims.name else f"run {number}",
                    trial_number=trial_number,
                    whole_s=device_seconds(recorded),
                    attempt_s=attempt_seconds(recorded),
                )
        return {each: self._took[table, each] for each in there}


class EndedTime(FinishedTimes):
    """What studies took, with what came to no result."""

    def __init__(self) -> None:
        super().__init__()
        self._work: dict[str, _Work] = {}

    def seconds(
        self, connection: Connection, ids: Sequence[int], spent: Mapping[str, float]
    ) -> float:
        """Of the studies of these numbers. `spent` is what attempts took that came to no result, by
        their tokens.

        A trial that went on from a checkpoint has most of its earlier attempts in its result, too:
        what is counted of it is the more of its result and of all its attempts.
        """
        earlier: dict[_Work, float] = {}
        works = self._works_of(connection, spent)
        for token, seconds in spent.items():
            earlier[works[token]] = earlier.get(works[token], 0.0) + seconds
        total = 0.0
        trials, runs = claims.c, verifications.c
        finished = [*self.of(connection, trials.claim_id, trials.study_id.in_(ids)).values()]
        finished += self.of(connection, runs.run_id, runs.study_id.in_(ids)).values()
        for took in finished:
            total += max(took.whole_s, took.attempt_s + earlier.pop(took.work, 0.0))
        return total + sum(earlier.values())

    @property
    def usual_s(self) -> float:
        """What half of those that have a result took at most; 0 before the first."""
        return statistics.median(e.whole_s for e in self._took.values()) if self._took else 0.0

    def _works_of(
        self, connection: Connection, tokens: Mapping[str, object]
    ) -> Mapping[str, _Work]:
        """The trials of these tokens. A run that verifies is never gone on with."""
        if new := [each for each in tokens if each not in self._work]:
            self._work |= {token: token for token in new}
            query = select(claims.c.token, claims.c.study_id, claims.c.trial_number)
            for token, study_id, number in connection.execute(query.where(claims.c.token.in_(new))):
                self._work[token] = study_id, number
        return self._work


# Who was granted device time, and what was spent without a result, as it is written: with each
# study what is its own, whoever it shares a limit with.


GRANTS = "tuner_gpu_hours"
LIFE_SIGN_S = LEASE_S / HEARTBEATS_PER_LEASE
"""A worker that lives is heard of this often: one that died did so within it."""
_RETURNED = "returned"
"""The state of a claim whose token is not there any more, among others."""
_ELSEWHERE = "elsewhere"
"""Begins what stands for a token: it was in another database."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Grant(Strict):
    """Seconds that one training may take, or, once it has `ended`, took.

    It has had its device for `had_s` and since `at`; where it `waits`, for `had_s` alone.
    """

    worker: str
    at: float
    seconds: Seconds
    ended: bool = False
    had_s: Seconds = 0.0
    waits: bool = False

    def held_s(self, until: float) -> float:
        """For how long it had its device where its worker was gone by then."""
        if self.ended:
            return self.seconds
        now_s = 0.0 if self.waits else max(0.0, until - self.at)
        return min(self.seconds, self.had_s + now_s)


class _Note(Strict):
    """What is kept with one study: grants and what was spent, each by the token of a claim."""

    grants: dict[str, Grant] = Field(default_factory=dict)
    spent: dict[str, Seconds] = Field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(self.model_dump())


@dataclass(slots=True)
class Account:
    """Of all studies that share a limit, by their numbers."""

    notes: dict[int, _Note]
    _written: dict[int, str]

    @staticmethod
    def read(connection: Connection, ids: Sequence[int]) -> Account:
        """As it is written, with what has ended since taken from the grants: a finished one's time
        is in its result.
        """
        texts = read_notes(connection, ids, GRANTS)
        notes = {study_id: _read(texts.get(study_id)) for study_id in ids}
        account = Account(notes, {study_id: each.to_json() for study_id, each in notes.items()})
        account._settle(connection)
        return account

    def write(self, connection: Connection) -> None:
        """What has changed; by who holds the rows of all these studies."""
        for study_id, note in self.notes.items():
            text = note.to_json()
            if text != self._written[study_id]:
                write_note(connection, study_id, GRANTS, text)

    # -- grants ------------------------------------------------------------------------------------

    @property
    def grants(self) -> dict[str, Grant]:
        """All that have not been settled, by token."""
        return {token: each for note in self.notes.values() for token, each in note.grants.items()}

    @property
    def granted_s(self) -> float:
        return sum(each.seconds for each in self.grants.values())

    @property
    def is_open(self) -> bool:
        """Whether somebody may yet give some of a grant back."""
        return any(not each.ended for each in self.grants.values())

    def grant(self, connection: Connection, token: str, grant: Grant) -> None:
        """Note it with the study of that claim, in the place of one that was there."""
        self.take_back(token)
        self._note_of(connection, token).grants[token] = grant

    def take_back(self, token: str) -> None:
        """Nothing of it was spent."""
        for note in self.notes.values():
            note.grants.pop(token, None)

    # -- what was spent without a result -----------------------------------------------------------

    @property
    def spent(self) -> dict[str, float]:
        """Seconds, by token."""
        return {token: each for note in self.notes.values() for token, each in note.spent.items()}

    def correct(self, token: str, seconds: float) -> None:
        """What was settled already took so long."""
        for note in self.notes.values():
            if token in note.spent:
                note.spent[token] = seconds

    def _note_of(self, connection: Connection, token: str) -> _Note:
        for table in (claims, verifications):
            query = select(table.c.study_id).where(table.c.token == token)
            if (study_id := connection.execute(query).scalar_one_or_none()) in self.notes:
                return self.notes[study_id]
        return next(iter(self.notes.values()), _Note())  # its study was deleted just now

    def _settle(self, connection: Connection) -> None:
        grants = self.grants
        if not grants:
            return
        now = float(connection.execute(select(database_now())).scalar_one())
        states: dict[str, tuple[str, float]] = {}
        for table in (claims, verifications):
            query = select(table.c.token, table.c.state, table.c.leased_until)
            for row in connection.execute(query.where(table.c.token.in_(list(grants)))):
                states[row.token] = row.state, min(now, row.leased_until or now)
        found = {token: states.get(token, (_RETURNED, now)) for token in grants}
        over = {token: each for token, each in found.items() if each[0] != "running"}
        gone = _gone_by(connection, {grants[token].worker for token in over})
        for note in self.notes.values():
            for token in over.keys() & note.grants.keys():
                grant, (state, until) = note.grants.pop(token), over[token]
                if state != "finished":
                    until = min(until, gone.get(grant.worker, now))
                    note.spent[token] = grant.held_s(until)


def note_without_result(connection: Connection, study_id: int, seconds: float) -> None:
    """Note of a new study what came to no result where it was before."""
    text = _Note(spent={f"{_ELSEWHERE}-{study_id}": seconds}).to_json()
    write_note(connection, study_id, GRANTS, text)


def _gone_by(connection: Connection, names: Collection[str]) -> dict[str, float]:
    """When these workers ended, or are known to have ended by, if they did; of those that signed
    in.
    """
    if not names:
        return {}
    c = workers.c
    found: dict[str, float] = {}
    for row in connection.execute(
        select(c.worker, c.seen_at, c.stopped).where(c.worker.in_(names))
    ):
        by = float(row.seen_at) + (0.0 if row.stopped else LIFE_SIGN_S)
        found[row.worker] = max(by, found.get(row.worker, by))
    return found


def _read(text: str | None) -> _Note:
    """What others wrote over is nothing."""
    try:
        return _Note.model_validate_json(text or "{}", strict=True)
    except ValueError:
        return _Note()


NOTHING_S = 1e-3
"""Less is nothing."""


class GpuHours:
    """The limit of `seconds` that the studies of these names share."""

    def __init__(self, engine: Engine, names: Sequence[str], seconds: float) -> None:
        self.engine = engine
        self.names = tuple(names)
        self.seconds = seconds
        self._ended = EndedTime()

    @staticmethod
    def of(engine: Engine, policy: SearchPolicy, name: str) -> GpuHours | None:
        """That of the study of this name; None where it has no limit."""
        if policy.max_gpu_s is None:
            return None
        names = policy.gpu_shared
        return GpuHours(engine, names if name in names else (*names, name), policy.max_gpu_s)

    @property
    def limit(self) -> tuple[tuple[str, ...], float]:
        """What it limits, and to how much."""
        return self.names, self.seconds

    def study_ids(self) -> tuple[int, ...]:
        """The numbers of its studies that are there, the oldest first."""
        with self.engine.connect() as connection:
            return tuple(ids_of(connection, self.names))

    # -- for who trains ----------------------------------------------------------------------------

    def ask(self, token: str, worker: str, beside_s: float = 0.0) -> float | None:
        """Seconds that the training of this claim may take, with the `beside_s` that its device has
        waited for it; None where too little is left for one as they usually are: then it must not
        begin.

        Raises:
            DBAPIError: the database is away.
        """
        with self.engine.begin() as connection:
            account = self._locked(connection)
            account.take_back(token)
            free = self.seconds - self._spent_s(connection, account)
            busy = {each.worker for each in account.grants.values() if not each.ended}
            share = free / max(1, len(self._at_work(connection) - busy - {worker}) + 1)
            least = max(self._ended.usual_s, NOTHING_S) + beside_s
            if share <= least:
                share = free  # for all it is too little: whoever comes first has it
            granted = share if share > least else None
            if granted is not None:
                grant = Grant(worker=worker, at=_now(connection), seconds=granted)
                account.grant(connection, token, grant)
            account.write(connection)
        return granted

    def waits(self, token: str, *, begins: bool) -> None:
        """The training of this claim waits for its device, or does so no more: if its worker is
        killed, what it waits does not count.

        Raises:
            DBAPIError: the database is away.
        """
        with self.engine.begin() as connection:
            account = self._locked(connection)
            grant = account.grants.get(token)
            if grant is None or grant.ended or grant.waits == begins:
                return
            now = _now(connection)
            had = {"at": now, "had_s": grant.held_s(now), "waits": begins}
            account.grant(connection, token, grant.model_copy(update=had))
            account.write(connection)

    def took(self, token: str, seconds: float) -> None:
        """The training of this claim has ended after so many seconds.

        Raises:
            DBAPIError: the database is away.
        """
        with self.engine.begin() as connection:
            account = self._locked(connection)
            if (grant := account.grants.get(token)) is not None:
                ended = Grant(worker=grant.worker, at=grant.at, seconds=seconds, ended=True)
                account.grant(connection, token, ended)
            else:  # it was taken for dead
                account.correct(token, seconds)
            account.write(connection)

    # -- for who asks what is left -----------------------------------------------------------------

    def spent_s(self) -> float:
        """Seconds that were spent, and those that trainings under way were granted."""
        with self.engine.connect() as connection:
            return self._spent_s(connection, self._account(connection))

    def is_over(self, connection: Connection) -> bool:
        """Whether too little is left for one more training, and nobody will give any back."""
        return not self.may_claim(connection, but_open=True)

    def may_claim(
        self, connection: Connection, worker: str = "", *, but_open: bool = False
    ) -> bool:
        """Whether a worker may make a piece of work ready: there is enough for one with what it has
        itself under way; `but_open`: or with what anybody has.
        """
        account = self._account(connection)
        if account.is_open and but_open:
            return True
        grants = account.grants.values()
        own = sum(each.seconds for each in grants if each.worker == worker and not each.ended)
        left = self.seconds - self._spent_s(connection, account) + own
        return left > max(self._ended.usual_s, NOTHING_S)

    # -- what is written ---------------------------------------------------------------------------

    def _account(self, connection: Connection) -> Account:
        return Account.read(connection, ids_of(connection, self.names))

    def _locked(self, connection: Connection) -> Account:
        """That nobody else changes until the transaction is over."""
        ids = ids_of(connection, self.names)
        query = select(studies.c.study_id).where(studies.c.study_id.in_(ids))
        connection.execute(query.order_by(studies.c.study_id).with_for_update()).all()
        return Account.read(connection, ids)

    def _spent_s(self, connection: Connection, account: Account) -> float:
        """What has ended and what is granted."""
        ids = list(account.notes)
        return account.granted_s + self._ended.seconds(connection, ids, account.spent)

    def _at_work(self, connection: Connection) -> set[str]:
        """The workers of these studies."""
        ids = ids_of(connection, self.names)
        lately = database_now() - workers.c.seen_at < SILENT_AFTER_S
        here = workers.c.study_id.in_(ids) & workers.c.stopped.is_(False) & lately
        return set(connection.execute(select(workers.c.worker).where(here)).scalars())


def without_result_s(connection: Connection, study_id: int) -> float:
    """Seconds of device time of this study that came to no result, and are in none."""
    spent = Account.read(connection, [study_id]).spent
    if not spent:
        return 0.0
    ended = EndedTime()
    return ended.seconds(connection, [study_id], spent) - ended.seconds(connection, [study_id], {})


def _now(connection: Connection) -> float:
    return float(connection.execute(select(database_now())).scalar_one())
