"""Who is at work: one row a worker, for `tuner status` and the live view."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Engine, delete, insert, select, update

from tuner.storage.dialects import database_now
from tuner.storage.schema import studies, workers

SILENT_AFTER_S = 120.0
"""A worker not seen for this long is not listed as working."""
_MOST_LETTERS = 64
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as the database last heard of it; `silent_s` is how long ago that was."""

    worker: str
    host: str
    pid: int
    device: str
    device_uuid: str
    trial_number: int | None
    epoch: int | None
    val_loss: float | None
    silent_s: float
    gpu_busy: float | None = None
    """The share of the time on its clock so far in which the GPU had work."""
    note: str | None = None
    """What keeps it from working, e.g. a full disk."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a worker found of its host; None is what it could not find, or did not look for."""

    torch_version: str | None = None
    tuner_version: str | None = None
    """With its revision, where that is known."""
    clock_skew_s: float | None = None
    """How far its clock was ahead of the database's."""


def log_lost(engine: Engine, lost: Iterable[tuple[str, str]]) -> None:
    """Say of each (work, worker) that it was taken back
    because its lease ran out, and where that process is.

    It may still be there, stopped or hanging, and keep its device from everybody.
    """
    c = workers.c
    for work, worker in lost:
        with engine.connect() as connection:
            where = select(c.host, c.pid, c.device).where(c.worker == worker)
            row = connection.execute(where.limit(1)).first()
        said = f"{work} is taken back: {worker} let its lease run out"
        if row is not None:
            said += (
                f"; if its process still exists, kill -KILL {row.pid} on {row.host} "
                f"frees its device ({row.device})"
            )
        _log.warning("%s", said)


class Roster:
    """The workers of one study."""

    def __init__(self, engine: Engine, study_id: int) -> None:
        self._engine = engine
        self._study_id = study_id

    def join(self, worker: str, *, facts: HostFacts | None = None, **where: Any) -> None:
        """List `worker`: `where` it is are its `host`, `pid`, `device` and `device_uuid`."""
        mine = (workers.c.worker == worker) & (workers.c.study_id == self._study_id)
        there = select(studies.c.study_id).where(studies.c.study_id == self._study_id)
        row = {"worker": worker, "study_id": self._study_id, **where}
        for name, value in asdict(facts or HostFacts()).items():
            row[name] = value[:_MOST_LETTERS] if isinstance(value, str) else value
        row |= dict.fromkeys(("started_at", "seen_at"), database_now())
        with self._engine.begin() as connection:
            if connection.execute(there.with_for_update()).first() is None:
                return  # it was deleted: whoever claims of it hears so
            connection.execute(delete(workers).where(mine))
            connection.execute(insert(workers).values(row))

    def report(self, worker: str, **values: Any) -> None:
        """Note that `worker` lives, with `trial_number`, `epoch`, `val_loss` as given."""
        self._update(workers.c.worker == worker, **values)

    def leave(self, worker: str) -> None:
        """Note that `worker` has ended. Whoever says so again, of one that is long dead, changes
        nothing: when it was last heard of is when it ended.
        """
        here = (workers.c.worker == worker) & workers.c.stopped.is_(False)
        gone = dict.fromkeys(("trial_number", "epoch", "val_loss", "gpu_busy", "note"))
        self._update(here, stopped=True, **gone)

    def _update(self, which: ColumnElement[bool], **values: Any) -> None:
        mine = which & (workers.c.study_id == self._study_id)
        with self._engine.begin() as connection:
            connection.execute(update(workers).where(mine).values(seen_at=database_now(), **values))

    def hosts(self, *, but: str = "") -> tuple[tuple[str, HostFacts], ...]:
        """The hosts of all who have worked here, `but` for one of them, with what they found of
        them; each that is the same once.
        """
        c = workers.c
        query = select(c.host, *(c[each.name] for each in fields(HostFacts)))
        theirs = (c.study_id == self._study_id) & (c.worker != but)
        with self._engine.connect() as connection:
            rows = connection.execute(query.where(theirs).order_by(c.started_at, c.worker)).all()
        found: dict[tuple[Any, ...], tuple[str, HostFacts]] = {}
        for row in rows:
            found[tuple(row)[:-1]] = row.host, HostFacts(*row[1:])
        return tuple(found.values())

    def working(self) -> tuple[WorkerRow, ...]:
        """Workers that have not left and were seen lately."""
        c, silent = workers.c, database_now() - workers.c.seen_at
        here = (c.study_id == self._study_id) & c.stopped.is_(False) & (silent < SILENT_AFTER_S)
        columns = [silent if e.name == "silent_s" else c[e.name] for e in fields(WorkerRow)]
        query = select(*columns).where(here).order_by(c.worker)
        with self._engine.connect() as connection:
            return tuple(WorkerRow(*row) for row in connection.execute(query))


# What tells hosts that work at a study apart, and may be seen in its times or errors: versions of
# torch and of tuner; and clocks that are wrong, which changes nothing but is worth knowing.


WRONG_CLOCK_S = 60.0
"""A clock that is further than this from the database's is worth a line."""
_PROGRAMS = {"torch": "torch_version", "tuner": "tuner_version"}


def newcomer_in_words(study: str, mine: HostFacts, others: Iterable[HostFacts]) -> list[str]:
    """What to say before a worker's first claim at a study, where `others` have worked."""
    lines = []
    others = list(others)
    for program, name in _PROGRAMS.items():
        here, there = getattr(mine, name), _values(others, name)
        if here is not None and there and here not in there:
            lines.append(
                f"study {study} has been worked at with {program} {' and '.join(there)}, this host "
                f"has {here}: times and errors of the two may differ"
            )
    return lines


def clock_in_words(facts: HostFacts, host: str) -> str | None:
    """What to say of a host's clock; None where it is right, or nothing is known of it."""
    skew = facts.clock_skew_s
    if skew is None or abs(skew) <= WRONG_CLOCK_S:
        return None
    ahead = "ahead of" if skew > 0 else "behind"
    off = f"the clock of {host} is {abs(skew):.0f} s {ahead} the database's"
    return f"{off}; only the database's counts"


def all_in_words(facts: Sequence[tuple[str, HostFacts]]) -> list[str]:
    """What tells the hosts apart that have worked at a study, by (host, facts)."""
    lines = []
    for program, name in _PROGRAMS.items():
        if len(found := _values([each for _, each in facts], name)) > 1:
            lines.append(f"worked at with {program} {', '.join(found)}")
    clocks = [clock_in_words(each, host) for host, each in facts]
    return lines + list(dict.fromkeys(line for line in clocks if line is not None))


def _values(facts: Iterable[HostFacts], name: str) -> list[str]:
    found = {str(value) for each in facts if (value := getattr(each, name)) is not None}
    return sorted(found)
