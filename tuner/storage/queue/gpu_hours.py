"""A limit of device time that several studies share (`--max-gpu-hours`): who may still spend how
much of it.

Whoever is about to train asks for a grant, under a lock: what is left is shared by the workers that
have none. So what has been spent and what is granted never come to more than the limit, whatever
happens on how many machines. A grant ends with its training; what that took is counted, and the
rest is free again. A worker that died had its device at most until its lease ran out, and never for
longer than its grant: so much is counted.

The grants are kept as an attribute that Optuna's tables have for its studies, of the first of these
studies: no table of ours is needed for them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter
from sqlalchemy import Connection, Engine, select

from tuner.files.plain import Strict
from tuner.spec.policy import SearchPolicy
from tuner.storage.database_clock import database_now
from tuner.storage.optuna.study_notes import ids_of, read_note, write_note
from tuner.storage.queue.device_time import device_seconds
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims, studies, verifications, workers

GRANTS = "tuner_gpu_hours"
NOTHING_S = 1e-3
"""Less is nothing."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Seconds that one training may take, or, once it has `ended`, took."""

    worker: str
    at: float
    seconds: float
    ended: bool = False


class _StoredGrant(Strict):
    worker: str
    at: float
    seconds: Seconds
    ended: bool = False


@dataclass(slots=True)
class _Account:
    """All that is written: by token of a claim."""

    grants: dict[str, Grant] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    """By what came to no result: it was handed back, or its worker lost."""

    @property
    def committed_s(self) -> float:
        return sum(each.seconds for each in self.grants.values()) + sum(self.spent.values())

    def open(self, *, but: str = "") -> bool:
        """Whether somebody, `but` for one worker, may yet give some of a grant back."""
        return any(not each.ended and each.worker != but for each in self.grants.values())


_GRANTS = TypeAdapter(dict[str, _StoredGrant])
_SPENT = TypeAdapter(dict[str, Seconds])


class GpuHours:
    """The limit of `seconds` that the studies of these names share."""

    def __init__(self, engine: Engine, names: Sequence[str], seconds: float) -> None:
        self.engine = engine
        self.names = tuple(names)
        self.seconds = seconds
        self._took: dict[tuple[str, int], float] = {}

    @staticmethod
    def of(engine: Engine, policy: SearchPolicy, name: str) -> GpuHours | None:
        """That of the study of this name; None where it has no limit."""
        if policy.max_gpu_s is None:
            return None
        return GpuHours(engine, policy.gpu_shared or (name,), policy.max_gpu_s)

    @property
    def limit(self) -> tuple[tuple[str, ...], float]:
        """What it limits, and to how much."""
        return self.names, self.seconds

    # -- for who trains ----------------------------------------------------------------------------

    def ask(self, token: str, worker: str, beside_s: float = 0.0) -> float | None:
        """Seconds that the training of this claim may take, with the `beside_s` that its device has
        waited for it; None where too little is left for one as they usually are: then it must not
        begin.

        Raises:
            DBAPIError: the database is away.
        """
        with self.engine.begin() as connection:
            home = self._lock(connection)
            account = self._account(connection, home)
            account.grants.pop(token, None)
            free = self.seconds - self._finished_s(connection) - account.committed_s
            busy = {each.worker for each in account.grants.values() if not each.ended}
            share = free / max(1, len(self._at_work(connection) - busy - {worker}) + 1)
            least = max(self._usual_s(), NOTHING_S) + beside_s
            if share <= least:
                share = free  # for all it is too little: whoever comes first has it
            granted = share if share > least else None
            if granted is not None:
                now = float(connection.execute(select(database_now())).scalar_one())
                account.grants[token] = Grant(worker=worker, at=now, seconds=granted)
            self._write(connection, home, account)
        return granted

    def took(self, token: str, seconds: float) -> None:
        """The training of this claim has ended after so many seconds.

        Raises:
            DBAPIError: the database is away.
        """
        with self.engine.begin() as connection:
            home = self._lock(connection)
            account = self._account(connection, home)
            if (grant := account.grants.get(token)) is not None:
                ended = Grant(worker=grant.worker, at=grant.at, seconds=seconds, ended=True)
                account.grants[token] = ended
                self._write(connection, home, account)

    # -- for who asks what is left -----------------------------------------------------------------

    def spent_s(self) -> float:
        """Seconds that were spent, and those that trainings under way were granted."""
        with self.engine.connect() as connection:
            return self._finished_s(connection) + self._account(connection).committed_s

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
        if account.open() and but_open:
            return True
        own = sum(e.seconds for e in account.grants.values() if e.worker == worker and not e.ended)
        left = self.seconds - self._finished_s(connection) - account.committed_s + own
        return left > max(self._usual_s(), NOTHING_S)

    # -- what is written ---------------------------------------------------------------------------

    def _home(self, connection: Connection) -> int | None:
        return next(iter(ids_of(connection, self.names)), None)

    def _lock(self, connection: Connection) -> int | None:
        home = self._home(connection)
        mine = studies.c.study_id == home
        connection.execute(select(studies.c.study_id).where(mine).with_for_update())
        return home

    def _account(self, connection: Connection, home: int | None = None) -> _Account:
        """As it is written, with what has ended since taken from the grants."""
        home = self._home(connection) if home is None else home
        return self._settled(connection, _read(read_note(connection, home, GRANTS)))

    def _write(self, connection: Connection, home: int | None, account: _Account) -> None:
        plain = {"grants": {token: asdict(g) for token, g in account.grants.items()}}
        text = json.dumps(plain | {"spent": account.spent})
        write_note(connection, home, GRANTS, text)

    def _settled(self, connection: Connection, account: _Account) -> _Account:
        """With no grant of a claim that is over: a finished one's time is in its result."""
        if not account.grants:
            return account
        tokens = list(account.grants)
        now = float(connection.execute(select(database_now())).scalar_one())
        states: dict[str, tuple[str, float]] = {}
        for table in (claims, verifications):
            query = select(table.c.token, table.c.state, table.c.leased_until)
            for row in connection.execute(query.where(table.c.token.in_(tokens))):
                states[row.token] = row.state, min(now, row.leased_until or now)
        for token in tokens:
            state, until = states.get(token, ("returned", now))
            if state == "running":
                continue
            grant = account.grants.pop(token)
            if state != "finished":
                held = grant.seconds if grant.ended else max(0.0, until - grant.at)
                account.spent[token] = min(grant.seconds, held)
        return account

    # -- what was spent ----------------------------------------------------------------------------

    def _finished_s(self, connection: Connection) -> float:
        """Of all trials and verification runs that have a result; each is read once."""
        ids = ids_of(connection, self.names)
        total = 0.0
        for kind, table, key in (
            ("trial", claims, claims.c.claim_id),
            ("run", verifications, verifications.c.run_id),
        ):
            mine = table.c.study_id.in_(ids) & (table.c.state == "finished")
            there = set(connection.execute(select(key).where(mine)).scalars())
            if new := sorted(each for each in there if (kind, each) not in self._took):
                for row in connection.execute(select(key, table.c.result).where(key.in_(new))):
                    recorded = TrialResult.from_json(row.result).recorded
                    self._took[kind, row[0]] = device_seconds(recorded)
            total += sum(self._took[kind, each] for each in there)
        return total

    def _usual_s(self) -> float:
        """What half of those that have ended took at most: less buys no training."""
        return statistics.median(self._took.values()) if self._took else 0.0

    def _at_work(self, connection: Connection) -> set[str]:
        """The workers of these studies."""
        ids = ids_of(connection, self.names)
        lately = database_now() - workers.c.seen_at < SILENT_AFTER_S
        here = workers.c.study_id.in_(ids) & workers.c.stopped.is_(False) & lately
        return set(connection.execute(select(workers.c.worker).where(here)).scalars())


def _read(text: str | None) -> _Account:
    """What others may have written there counts as nothing."""
    try:
        stored = json.loads(text or "{}")
        grants = _GRANTS.validate_python(stored.get("grants", {}), strict=True)
        spent = _SPENT.validate_python(stored.get("spent", {}))
    except (ValueError, AttributeError):
        return _Account()
    return _Account({token: Grant(**each.model_dump()) for token, each in grants.items()}, spent)
