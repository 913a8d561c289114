"""What a launch does about workers that an engine placed: the engine here is made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from tuner.errors import TunerError
from tuner.launch.engines import placement
from tuner.launch.engines.placement import Place, PlacedWorkers, PlaceState, WorkerCommand
from tuner.launch.request import Outcome, StopRequests
from tuner.storage.records import Counts
from tuner.storage.url import DatabaseUrl, parse_url

COMMAND = WorkerCommand(studies="small", address=parse_url("sqlite:///x.db"), cores=1)
WAITING = Place(name="1", state=PlaceState.WAITING, why="no GPU is free")
WORKING = Place(name="1", state=PlaceState.WORKING)
DONE = Place(name="1", state=PlaceState.ENDED, code=0)
FAILED = Place(name="1 on b", state=PlaceState.ENDED, code=2, why="another device model")


@dataclass
class MadeUp:
    """An engine whose workers are as `seen` says, one look after another; the last stays."""

    seen: list[Place]
    cores: int | None = 1
    workers: int = 1
    label: str = "the made-up engine"
    notice: str = ""
    begun_again: int = 0
    stopped: int = 0
    left: int = 1
    finishes_at: int = 10**9
    looks: int = 0
    reaped: int = 0

    def check(self, address: DatabaseUrl) -> None:
        """Anything goes."""

    def in_words(self, command: WorkerCommand) -> str:
        return " ".join(command.words())

    @contextmanager
    def place(self, command: WorkerCommand) -> Iterator[MadeUp]:
        assert command == COMMAND
        yield self

    def look(self) -> Sequence[Place]:
        self.looks += 1
        return [self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]]

    def stop(self) -> None:
        self.stopped += 1
        self.seen = [DONE]

    def again(self) -> None:
        self.begun_again += 1
        self.seen = [WORKING]
        self.finishes_at = self.looks + 1


@dataclass
class Queue:
    """Work that is over once the engine was looked at often enough."""

    engine: MadeUp

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        del worker, state
        self.engine.reaped += 1
        return 0

    def counts(self) -> Counts:
        over = self.engine.looks >= self.engine.finishes_at
        return Counts(budget=1, running=0, finished=int(over))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "LOOK_S", "REAP_S", "PATIENT_S"):
        monkeypatch.setattr(placement, name, 0.0)


def run(
    engine: MadeUp, stop: StopRequests | None = None, *, timeout_s: float | None = None
) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    workers = PlacedWorkers(
        queues=cast("Any", [Queue(engine)]),
        engine=engine,
        command=COMMAND,
        stop=stop or StopRequests(),
        note=said.append,
    )
    return workers.run(lambda: None, timeout_s=timeout_s), said


def test_it_ends_with_the_work_and_sends_the_workers_home() -> None:
    engine = MadeUp([WORKING], finishes_at=3)
    assert run(engine) == (Outcome.FILLED, [])
    assert engine.stopped == 1
    assert engine.reaped > 1


def test_who_waits_for_a_place_is_told_of_once() -> None:
    engine = MadeUp([WAITING, WAITING, WAITING, WORKING], finishes_at=5)
    _, said = run(engine)
    assert said == ["the made-up engine: 1 of 1 workers wait for a place: no GPU is free"]


def test_workers_that_all_failed_end_it_with_the_last_ones_words() -> None:
    with pytest.raises(TunerError, match="1 on b ended with exit code 2: another device model"):
        run(MadeUp([WORKING, FAILED]))


def test_workers_that_went_home_before_a_budget_was_raised_begin_again() -> None:
    engine = MadeUp([WORKING, DONE])
    assert run(engine)[0] is Outcome.FILLED
    assert engine.begun_again == 1


def test_a_stop_and_a_time_limit_end_it_before_its_time() -> None:
    stop = StopRequests()
    stop.ask()
    engine = MadeUp([WORKING])
    assert run(engine, stop)[0] is Outcome.INTERRUPTED
    assert run(MadeUp([WORKING]), timeout_s=0.05)[0] is Outcome.TIMED_OUT
    assert engine.stopped == 1
