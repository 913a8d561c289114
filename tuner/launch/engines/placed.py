"""A launch whose workers an engine has placed: it looks on, takes back what is lost, and ends.

What a supervisor does on a device's own host, a worker with `--keep-alive` does there.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.errors import StudyGoneError, TunerError
from tuner.launch.engines.placement import Engine, Place, Placement, PlaceState, WorkerCommand
from tuner.launch.outcome import Outcome, StopRequests, Work
from tuner.storage.retry import persistently

T = TypeVar("T")
POLL_S = 0.25
LOOK_S, REAP_S = 1.0, 5.0
PATIENT_S = 10.0
"""Engines take seconds to place a worker: so long a wait is nothing to speak of."""
STOP_GRACE_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PlacedWorkers:
    """Has `engine` place workers until the queues of `works` are empty."""

    works: Sequence[Work]
    engine: Engine
    command: WorkerCommand
    stop: StopRequests
    note: Callable[[str], None]
    """Gets a line for a person, sometimes."""
    _said: dict[str, str] = field(default_factory=dict)
    """What was last said of a place, by its name."""

    def run(self, tick: Callable[[], None], *, timeout_s: float | None = None) -> Outcome:
        """Work; `tick` is called a few times a second.

        Raises:
            TunerError: the engine refuses, or every worker ended before the work was done.
            StudyGoneError: a study was deleted meanwhile; the workers have ended.
        """
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        with self.engine.place(self.command) as placement:
            try:
                return self._loop(placement, tick, deadline)
            finally:
                self._end(placement, tick)

    def _loop(
        self, placement: Placement, tick: Callable[[], None], deadline: float | None
    ) -> Outcome:
        began = time.monotonic()
        next_look, next_reap = began, began + REAP_S
        while True:
            if self.stop.first is not None:
                return self.stop.first
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return Outcome.TIMED_OUT
            if now >= next_reap:
                next_reap = now + REAP_S
                for each in self.works:
                    self._persist(each.ledger.reap, "a look for lost work")
            tick()
            if not self._left():
                return Outcome.FILLED
            if now >= next_look:
                places = placement.look()
                self._tell(places, patient=now < began + PATIENT_S)
                self._see_to_ends(placement, places)
                next_look = time.monotonic() + LOOK_S
            time.sleep(POLL_S)

    def _see_to_ends(self, placement: Placement, places: Sequence[Place]) -> None:
        """Where all have ended and there is work left: somebody raised the budget meanwhile, or
        they cannot do it.
        """
        if any(each.state is not PlaceState.ENDED for each in places) or not self._left():
            return
        failed = [each for each in places if each.failed]
        if failed:
            last = failed[-1]
            raise TunerError(
                f"no worker on {self.engine.label} is left: {last.name} ended"
                f"{_with(last.code)}: {last.why or 'it said nothing'}"
            )
        placement.again()

    def _tell(self, places: Sequence[Place], *, patient: bool) -> None:
        waiting = [each for each in places if each.state is PlaceState.WAITING]
        line = ""
        if waiting and not patient:
            others = f"{len(waiting)} of {len(places)} workers wait"
            line = f"{self.engine.label}: {others} for a place: {waiting[0].why}"
        self._once("", line)
        for each in places:
            code = _with(each.code)
            ended = f"{self.engine.label}: the worker {each.name} ended{code}: {each.why}"
            self._once(each.name, ended if each.failed else "")

    def _once(self, about: str, line: str) -> None:
        if line and line != self._said.get(about):
            self.note(line)
        self._said[about] = line

    def _end(self, placement: Placement, tick: Callable[[], None]) -> None:
        """Have the workers hand back what they run, and go home; the engine ends those that do not
        when somebody asks again or the grace is over.
        """
        placement.stop()
        deadline = time.monotonic() + STOP_GRACE_S
        asked = self.stop.first
        while time.monotonic() < deadline and not self.stop.urgent:
            if all(each.state is PlaceState.ENDED for each in placement.look()):
                return
            with contextlib.suppress(StudyGoneError):  # which may be why we stop
                tick()
            if asked is None and self.stop.first is not None:
                return  # the work was done; now somebody is in a hurry
            time.sleep(POLL_S)

    def _left(self) -> int:
        return sum(self._persist(each.ledger.counts, "the budget").left for each in self.works)

    def _persist(self, action: Callable[[], T], what: str) -> T:
        return persistently(action, what, give_up=lambda: self.stop.first is not None)


def _with(code: int | None) -> str:
    return "" if code is None else f" with exit code {code}"
