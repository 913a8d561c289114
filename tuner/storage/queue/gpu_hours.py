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

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, Engine, select

from tuner.spec.policy import SearchPolicy
from tuner.storage.database_clock import database_now
from tuner.storage.optuna.study_notes import ids_of
from tuner.storage.queue.ended_time import EndedTime
from tuner.storage.queue.gpu_account import Account, Grant
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.storage.schema import studies, workers

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
            changed = replace(grant, at=now, had_s=grant.held_s(now), waits=begins)
            account.grant(connection, token, changed)
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
