"""Device time: what work had of it, and a limit of it that several studies share
(`--max-gpu-hours`).

Time is a sum over all attempts, whatever came of them: what a result says, and of an attempt that
ended without one what its last life sign said (`had_s`).

Whoever is about to train asks for a grant, under a lock: what is left is shared by the workers that
have none. So what has been spent and what is granted never come to more than the limit, whatever
happens on how many machines. A grant stands with its attempt. It ends with the training; what that
took is counted, and the rest is free again.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, func, insert, select, update

from tuner.spec.policy import SearchPolicy
from tuner.storage.dialects import database_now
from tuner.storage.optuna.private import ids_of
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.storage.records import TrialResult, attempt_seconds, cell, damage_named, device_seconds
from tuner.storage.schema import SAME_WORK, studies, work, workers

# Seconds for which some work had devices, of all that has ended: with a result or without.


_Piece = tuple[int, str, int | None, int | None]
"""Of the columns `SAME_WORK`."""


@dataclass(frozen=True, slots=True)
class _Took:
    """What a result says: of all of it, and of the attempt that came to it."""

    piece: _Piece
    trial_number: int
    whole_s: float
    attempt_s: float


class DeviceTimes:
    """Of work that has ended. Results are read once: they never change."""

    def __init__(self) -> None:
        self._took: dict[int, _Took] = {}

    def of(self, connection: Connection, mine: ColumnElement[bool]) -> dict[int, _Took]:
        """What the results of some work say, by the numbers of their rows."""
        c = work.c
        finished = select(c.work_id).where(mine & (c.state == "finished"))
        there = set(connection.execute(finished).scalars())
        if new := sorted(there - self._took.keys()):
            query = select(c.work_id, *SAME_WORK, c.result).where(c.work_id.in_(new))
            for work_id, *piece, text in connection.execute(query):
                study_id, _, number, _ = piece
                with damage_named(connection.engine, study_id), cell("tuner_work.result", number):
                    recorded = TrialResult.from_json(text).recorded
                whole_s, attempt_s = device_seconds(recorded), attempt_seconds(recorded)
                self._took[work_id] = _Took(tuple(piece), number, whole_s, attempt_s)
        return {each: self._took[each] for each in there}

    def seconds(self, connection: Connection, mine: ColumnElement[bool]) -> float:
        """Of some work, all attempts.

        A trial that went on from a checkpoint has most of its earlier attempts in its result, too:
        what is counted of it is the more of its result and of all its attempts.
        """
        c = work.c
        lost = mine & c.state.in_(("lost", "returned")) & (c.had_s > 0)
        query = select(*SAME_WORK, func.sum(c.had_s)).where(lost).group_by(*SAME_WORK)
        earlier: dict[_Piece, float] = {}
        for *piece, had_s in connection.execute(query):
            earlier[tuple(piece)] = float(had_s)
        total = 0.0
        for took in self.of(connection, mine).values():
            total += max(took.whole_s, took.attempt_s + earlier.pop(took.piece, 0.0))
        return total + sum(earlier.values())

    @property
    def usual_s(self) -> float:
        """What half of those that have a result took at most; 0 before the first."""
        return statistics.median(e.whole_s for e in self._took.values()) if self._took else 0.0


def without_result_s(connection: Connection, study_id: int) -> float:
    """Seconds of device time of this study that came to no result, and are in none."""
    times, mine = DeviceTimes(), work.c.study_id == study_id
    whole_s = sum(each.whole_s for each in times.of(connection, mine).values())
    return times.seconds(connection, mine) - whole_s


def note_without_result(connection: Connection, study_id: int, seconds: float) -> None:
    """Note of a new study what came to no result where it was before."""
    ended = {"kind": "before", "state": "returned", "told": True, "had_s": seconds}
    connection.execute(insert(work).values(study_id=study_id, **ended))


NOTHING_S = 1e-3
"""Less is nothing."""


class GpuHours:
    """The limit of `seconds` that the studies of these names share."""

    def __init__(self, engine: Engine, names: Sequence[str], seconds: float) -> None:
        self.engine = engine
        self.names = tuple(names)
        self.seconds = seconds
        self._times = DeviceTimes()

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
            ids = self._locked(connection)
            mine = work.c.token == token
            connection.execute(update(work).where(mine).values(granted_s=None))
            free = self.seconds - self._spent_s(connection, ids)
            trains = select(work.c.worker).where(_granted(ids) & work.c.ended_at.is_(None))
            busy = set(connection.execute(trains).scalars())
            share = free / max(1, len(self._at_work(connection, ids) - busy - {worker}) + 1)
            least = max(self._times.usual_s, NOTHING_S) + beside_s
            if share <= least:
                share = free  # for all it is too little: whoever comes first has it
            granted = share if share > least else None
            if granted is not None:
                connection.execute(update(work).where(mine).values(granted_s=granted))
        return granted

    def took(self, token: str, seconds: float) -> None:
        """The training of this claim has ended after so many seconds.

        Raises:
            DBAPIError: the database is away.
        """
        with self.engine.begin() as connection:
            self._locked(connection)
            ended: dict[str, Any] = {"granted_s": seconds, "had_s": seconds}
            mine = (work.c.token == token) & (work.c.state != "finished")
            connection.execute(update(work).where(mine).values(ended_at=database_now(), **ended))

    # -- for who asks what is left -----------------------------------------------------------------

    def spent_s(self) -> float:
        """Seconds that were spent, and those that trainings under way were granted."""
        with self.engine.connect() as connection:
            return self._spent_s(connection, ids_of(connection, self.names))

    def is_over(self, connection: Connection) -> bool:
        """Whether too little is left for one more training, and nobody will give any back."""
        ids = ids_of(connection, self.names)
        trains = select(work.c.work_id).where(_granted(ids) & work.c.ended_at.is_(None)).limit(1)
        if connection.execute(trains).first() is not None:
            return False
        return not self.may_claim(connection)

    def may_claim(self, connection: Connection, worker: str = "") -> bool:
        """Whether a worker may make a piece of work ready: there is enough for one with what it has
        itself under way.
        """
        ids = ids_of(connection, self.names)
        trains = _granted(ids) & work.c.ended_at.is_(None) & (work.c.worker == worker)
        own = select(func.coalesce(func.sum(work.c.granted_s), 0.0)).where(trains)
        own_s = float(connection.execute(own).scalar_one())
        left = self.seconds - self._spent_s(connection, ids) + own_s
        return left > max(self._times.usual_s, NOTHING_S)

    def _locked(self, connection: Connection) -> list[int]:
        """The numbers of its studies. Nobody else grants of them until the transaction is over."""
        ids = ids_of(connection, self.names)
        query = select(studies.c.study_id).where(studies.c.study_id.in_(ids))
        connection.execute(query.order_by(studies.c.study_id).with_for_update()).all()
        return ids

    def _spent_s(self, connection: Connection, ids: Sequence[int]) -> float:
        """What has ended and what is granted."""
        granted = select(func.coalesce(func.sum(work.c.granted_s), 0.0)).where(_granted(ids))
        ended_s = self._times.seconds(connection, work.c.study_id.in_(ids))
        return ended_s + float(connection.execute(granted).scalar_one())

    def _at_work(self, connection: Connection, ids: Sequence[int]) -> set[str]:
        """The workers of these studies."""
        lately = database_now() - workers.c.seen_at < SILENT_AFTER_S
        here = workers.c.study_id.in_(ids) & workers.c.stopped.is_(False) & lately
        return set(connection.execute(select(workers.c.worker).where(here)).scalars())


def _granted(ids: Sequence[int]) -> ColumnElement[bool]:
    """The attempts of these studies that are under way, and may take device time."""
    return work.c.study_id.in_(ids) & (work.c.state == "running") & work.c.granted_s.is_not(None)
