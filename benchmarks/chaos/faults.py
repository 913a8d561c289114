"""Who does the damage: every few seconds to a worker, and to the database server, all of it noted."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
from stand import Stand, trainers_of, workers_of

OUTAGE_S = 20.0
_SIGNALS = {"kill -9": signal.SIGKILL, "freeze": signal.SIGSTOP, "SIGTERM": signal.SIGTERM}
WORKER_FAULTS = tuple(_SIGNALS)


@dataclass(slots=True)
class Record:
    """What was done to whom and when (in seconds since the start), and how many workers lived."""

    began: float = field(default_factory=time.monotonic)
    events: list[dict[str, Any]] = field(default_factory=list)
    living: list[tuple[float, int]] = field(default_factory=list)

    def now(self) -> float:
        return round(time.monotonic() - self.began, 1)

    def note(self, what: str, **details: Any) -> None:
        self.events.append({"at_s": self.now(), "what": what, **details})
        print(f"  {self.now():7.1f} s  {what} {details or ''}", flush=True)

    def count(self, *what: str) -> int:
        return sum(event["what"] in what for event in self.events)


class Monkey:
    """Every `every_s` seconds does one thing to one living worker, both drawn from a seed."""

    def __init__(
        self,
        stand: Stand,
        launch: subprocess.Popen[bytes],
        record: Record,
        *,
        seed: int,
        every_s: float,
        trainers: bool = False,
    ) -> None:
        self._trainers = trainers
        self._stand, self._launch, self._record = stand, launch, record
        self._random = random.Random(seed)
        self._every_s = every_s
        self._frozen: list[tuple[float, psutil.Process]] = []

    @property
    def freeze_s(self) -> float:
        """Past the lease, so that the trial is another's when the worker wakes."""
        return self._stand.lease_s * 1.5

    def harass(self, meanwhile: Callable[[], None], *, limit_s: float) -> int | None:
        """Until the launch ends; its exit code, None when it did not within `limit_s`. Every half second `meanwhile`."""
        deadline, next_fault = time.monotonic() + limit_s, time.monotonic() + 2 * self._every_s
        while self._launch.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)
            self._record.living.append((self._record.now(), len(workers_of(self._launch))))
            self._wake(time.monotonic())
            if time.monotonic() >= next_fault:
                next_fault += self._every_s
                self._strike()
            meanwhile()
        self._wake(float("inf"))
        return self._launch.poll()

    def _strike(self) -> None:
        workers = workers_of(self._launch) + (trainers_of(self._launch) if self._trainers else [])
        share, fault = self._random.random(), self._random.choice(WORKER_FAULTS)
        if not workers:
            self._record.note("nobody to harass")
            return
        victim = workers[int(share * len(workers))]
        with contextlib.suppress(psutil.NoSuchProcess):
            kind = "trainer" if "sleeping.py" in " ".join(victim.cmdline()) else "worker"
            victim.send_signal(_SIGNALS[fault])
            if fault == "freeze":
                self._frozen.append((time.monotonic() + self.freeze_s, victim))
            self._record.note(fault, pid=victim.pid, of=len(workers), kind=kind)

    def _wake(self, now: float) -> None:
        for until, process in [each for each in self._frozen if each[0] <= now]:
            self._frozen.remove((until, process))
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


class Restarts:
    """Restarts the server at three points on the way: fast, immediate, and with `OUTAGE_S` seconds in between."""

    def __init__(self, stand: Stand, record: Record) -> None:
        assert stand.cluster is not None
        self._stand, self._cluster, self._record = stand, stand.cluster, record
        shares = ((0.2, "fast", 0.0), (0.45, "immediate", 0.0), (0.7, "fast", OUTAGE_S))
        self._plan = [(round(share * stand.trials), how, down_s) for share, how, down_s in shares]
        self._start_at: float | None = None

    def look(self) -> None:
        """Stop or start the server when it is time to; to be called often. Not from a thread: the server dies with
        the thread that started it.
        """
        if self._start_at is not None:
            if time.monotonic() >= self._start_at:
                self._cluster.start()
                self._start_at = None
                self._record.note("database started")
        elif (
            self._plan
            and (finished := self._finished()) is not None
            and finished >= self._plan[0][0]
        ):
            _, how, down_s = self._plan.pop(0)
            self._record.note(f"database stopped ({how})", finished=finished, down_s=down_s)
            self._cluster.stop(signal.SIGQUIT if how == "immediate" else signal.SIGINT)
            self._start_at = time.monotonic() + down_s

    @property
    def done(self) -> bool:
        return not self._plan and self._start_at is None

    def _finished(self) -> int | None:
        with (
            contextlib.suppress(Exception),
            self._cluster.connect(_database(self._stand.url)) as connection,
        ):
            row = connection.execute(
                "SELECT count(*) FROM tuner_work WHERE kind = 'trial' AND state = 'finished'"
            ).fetchone()
            return int(row[0]) if row else None
        return None


def _database(url: str) -> str:
    return url.rsplit("/", 1)[-1]


def each_second(action: Callable[[], None]) -> Callable[[], None]:
    """`action`, but at most once a second."""

    def turns() -> Iterator[None]:
        last = 0.0
        while True:
            if time.monotonic() - last >= 1.0:
                last = time.monotonic()
                action()
            yield

    going = turns()
    return lambda: next(going)
