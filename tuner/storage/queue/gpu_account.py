"""Who was granted device time, and what was spent without a result, as it is written: with each
study what is its own, whoever it shares a limit with.

It is an attribute that Optuna's tables have for its studies: no table of ours is needed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter
from sqlalchemy import Connection, select

from tuner.files.plain import Strict
from tuner.storage.database_clock import database_now
from tuner.storage.optuna.study_notes import read_notes, write_note
from tuner.storage.queue.leases import HEARTBEATS_PER_LEASE, LEASE_S
from tuner.storage.schema import claims, verifications, workers

GRANTS = "tuner_gpu_hours"
LIFE_SIGN_S = LEASE_S / HEARTBEATS_PER_LEASE
"""A worker that lives is heard of this often: one that died did so within it."""
_RETURNED = "returned"
"""The state of a claim whose token is not there any more, among others."""
_ELSEWHERE = "elsewhere"
"""Begins what stands for a token: it was in another database."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Seconds that one training may take, or, once it has `ended`, took.

    It has had its device for `had_s` and since `at`; where it `waits`, for `had_s` alone.
    """

    worker: str
    at: float
    seconds: float
    ended: bool = False
    had_s: float = 0.0
    waits: bool = False

    def held_s(self, until: float) -> float:
        """For how long it had its device where its worker was gone by then."""
        if self.ended:
            return self.seconds
        now_s = 0.0 if self.waits else max(0.0, until - self.at)
        return min(self.seconds, self.had_s + now_s)


class _StoredGrant(Strict):
    worker: str
    at: float
    seconds: Seconds
    ended: bool = False
    had_s: Seconds = 0.0
    waits: bool = False


_GRANTS = TypeAdapter(dict[str, _StoredGrant])
_SPENT = TypeAdapter(dict[str, Seconds])


@dataclass(slots=True)
class _Note:
    """Of one study, by token of a claim."""

    grants: dict[str, Grant] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    """By what came to no result: it was handed back, or its worker lost."""

    def to_json(self) -> str:
        grants = {token: asdict(grant) for token, grant in self.grants.items()}
        return json.dumps({"grants": grants, "spent": self.spent})


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
    """What others may have written there counts as nothing."""
    try:
        stored = json.loads(text or "{}")
        grants = _GRANTS.validate_python(stored.get("grants", {}), strict=True)
        spent = _SPENT.validate_python(stored.get("spent", {}))
    except (ValueError, AttributeError, RecursionError):
        return _Note()
    return _Note({token: Grant(**each.model_dump()) for token, each in grants.items()}, spent)
