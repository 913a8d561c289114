"""The supervisor: starts one worker per device, starts a dead one again, and stops them cleanly.

It never imports torch and never touches a device: a worker sees only its own GPU, through its
environment.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import AGAIN_S, WAITING_FOR_DEVICE, holder_among, stopped_holder
from tuner.errors import StudyGoneError, TunerError, UsageError
from tuner.files.child import last_line
from tuner.launch.child import Child, EarlyWorkers, Watchdog
from tuner.launch.request import Outcome, StopRequests
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.records import Counts
from tuner.storage.retry import DATABASE_FAILURES, persistently
from tuner.study.open import OpenStudy
from tuner.worker.process import FRESH_PROCESS, MAX_RESTARTS

# Says of workers that wait for their devices for whom they wait: they themselves tell only their
# logs.


PATIENT_S = 3.0
"""Launches that share a device take turns: so long a wait is nothing to speak of."""
LOOK_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wait:
    """Of the worker on one device. What was said stays known when the wait is over, so that turns
    do not fill pages.
    """

    since: float | None = None
    look_at: float = 0.0
    said: str = ""
    say_again: float = 0.0
    is_told: bool = False


@dataclass(slots=True)
class DeviceWaits:
    """The waits of a launch's workers."""

    _waits: dict[str, _Wait] = field(default_factory=dict)

    def look(self, device: Gpu | CpuCores, phase: str | None) -> None:
        """What the worker on `device` is at by now; None: there is none."""
        wait = self._waits.setdefault(device.label, _Wait())
        now = time.monotonic()
        if phase != WAITING_FOR_DEVICE:
            if wait.is_told and wait.since is not None:
                # A short trial can end between two looks, and its worker with it.
                end = "waits for its device no longer" if phase is None else "has its device now"
                _log.warning(
                    "the worker on %s %s, after %.0f s", device.label, end, now - wait.since
                )
            wait.since, wait.is_told = None, False
            return
        if wait.since is None:
            wait.since, wait.look_at = now, now + PATIENT_S
        if now < wait.look_at:
            return
        wait.look_at = now + LOOK_S
        holder = holder_among(device.lock_names)
        stopped = holder is not None and holder.is_stopped
        if now < wait.say_again and not (stopped and str(holder) != wait.said):
            return
        wait.said, wait.say_again, wait.is_told = str(holder), now + AGAIN_S, True
        _log.warning(
            "the worker on %s waits for its device, for %.0f s by now: %s",
            device.label,
            now - wait.since,
            holder or "another process has it",
        )


T = TypeVar("T")
POLL_S = 0.25
REAP_S = 5.0
STOP_GRACE_S = 60.0
FIRST_PAUSE_S = 1.0
WORKER_COMMAND = (sys.executable, "-m", "tuner", "worker")
_ASKED_TO_STOP = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""How a worker ends that somebody else told to:
it goes on in a new process, and nothing is held against it."""


@dataclass(slots=True)
class Supervisor:
    """Runs workers on `devices` until the `queues` of `studies` are empty.

    `worker_options` go to each worker's command line, `environment` to its environment: the
    database's address with its password travels there, never on a command line.
    """

    studies: Sequence[OpenStudy]
    queues: Sequence[Queue[Any]]
    devices: Sequence[Gpu | CpuCores]
    worker_options: Sequence[str]
    environment: Mapping[str, str]
    log_folder: Path
    worker_command: Sequence[str] = field(default_factory=lambda: WORKER_COMMAND)
    """What starts a worker; the options of `tuner worker` follow."""
    early: EarlyWorkers = field(default_factory=EarlyWorkers)
    """Workers that are there already: the first of a device is taken from them."""
    hang_limit_s: float | None = None
    """See `Watchdog`."""
    deliver: Callable[[], object] = lambda: None
    """Brings results that a worker left on this machine to the database: once its work is taken
    back, none counts."""
    stop: StopRequests = field(default_factory=StopRequests)
    """What ends the work before its time."""
    _dog: Watchdog = field(init=False)
    _waits: DeviceWaits = field(default_factory=DeviceWaits)

    def __post_init__(self) -> None:
        self._dog = Watchdog(self.hang_limit_s)

    def run(self, tick: Callable[[], None], *, timeout_s: float | None = None) -> Outcome:
        """Work; `tick` is called a few times a second.

        Raises:
            TunerError: the workers could not be kept alive (the last line of a log says why).
            StudyGoneError: a study was deleted meanwhile; the workers have ended.
        """
        self.log_folder.mkdir(parents=True, exist_ok=True)
        children = [Child.on(device, self.log_folder) for device in self.devices]
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        with self._dog:
            try:
                return self._loop(children, tick, deadline)
            finally:
                self._stop(children, tick)

    def _loop(
        self, children: list[Child], tick: Callable[[], None], deadline: float | None
    ) -> Outcome:
        next_reap = time.monotonic() + REAP_S
        while True:
            if self.stop.first is not None:
                return self.stop.first
            if deadline is not None and time.monotonic() >= deadline:
                return Outcome.TIMED_OUT
            for child in children:
                self._look_after(child)
                self._waits.look(child.device, None if child.lines is None else child.beat.phase)
            if time.monotonic() >= next_reap:
                next_reap = time.monotonic() + REAP_S
                for queue in self.queues:
                    self._persist(queue.reap, "a look for lost trials")
                self._call_back(children)
            tick()
            if all(child.done for child in children) and not self._call_back(children):
                if self._left() == 0 or not any(child.given_up for child in children):
                    return Outcome.FILLED
                raise self._gave_up(children)
            time.sleep(POLL_S)

    def _look_after(self, child: Child) -> None:
        if child.done:
            return
        if child.process is None:
            if child.is_due:
                self._start(child)
            return
        code = child.process.code
        if code is not None:
            self._see_to_its_end(child, code)

    def _see_to_its_end(self, child: Child, code: int) -> None:
        """Take back what the worker held, and decide whether and when another follows it."""
        if child.lines is not None:
            self._dog.forget(child)
        held = self._persist(lambda: self._take_back(child), "a dead worker's trial")
        ended_well = code == 0 and not held  # the user's code may end a process with any code
        if ended_well or self._left() == 0:
            child.done = True
            return
        afresh = (
            code == FRESH_PROCESS
        )  # the trial that lost it its device's context is recorded, with the reason
        if not afresh:
            _log.warning(
                "the worker on %s ended with exit code %d%s; its log: %s",
                child.device.label,
                code,
                " in the middle of a trial" if code == 0 else "",
                child.log_path,
            )
        if self._results(child) > afresh:
            child.failures = 0
        if code not in _ASKED_TO_STOP:
            child.failures += 1
        child.done = child.given_up = child.failures >= MAX_RESTARTS or code == UsageError.exit_code
        pause_s = 0.0 if afresh else FIRST_PAUSE_S * 2.0 ** max(0, child.failures - 1)
        child.wait(pause_s)
        if child.given_up:
            _log.error(
                "the worker on %s is not started again: it ended %d times",
                child.device.label,
                child.failures,
            )

    def _call_back(self, children: list[Child]) -> bool:
        """Have workers started again that found nothing
        left to do before somebody raised the budget.
        """
        home = [child for child in children if child.done and not child.given_up]
        if not home:
            return False
        counts = [self._counts(queue) for queue in self.queues]
        budget = sum(each.budget for each in counts)
        if not any(each.left for each in counts):
            return False
        called = [child for child in home if child.budget_at_start < budget]
        for child in called:
            child.done, child.process = False, None
        return bool(called)

    def _start(self, child: Child) -> None:
        if (holder := stopped_holder(child.device.lock_names)) is not None:
            _log.warning(
                "the worker on %s will have to wait for its device: %s", child.device.label, holder
            )
        child.budget_at_start = sum(self._counts(queue).budget for queue in self.queues)
        names = ",".join(opened.name for opened in self.studies)
        if not self._takes_early(child, names):
            command = [*self.worker_command, "--study", names]
            child.start(command, self.worker_options, self.environment)
        self._dog.watch(child)

    def _takes_early(self, child: Child, names: str) -> bool:
        """Have the worker that waits on this device for its studies, if there is one."""
        early = self.early.take(child.device, names)
        if early is None:
            return False
        child.process, child.lines, child.name = early.process, early.lines, early.name
        return True

    def _stop(self, children: list[Child], tick: Callable[[], None]) -> None:
        """Ask the workers to hand back what they run; kill them when somebody asks again or the
        grace is over.
        """
        running = [child for child in children if child.runs]
        for child in running:
            assert child.process is not None
            child.process.popen.terminate()
        deadline = time.monotonic() + STOP_GRACE_S
        try:
            while any(child.runs for child in running):
                if self.stop.urgent or time.monotonic() > deadline:
                    break
                with contextlib.suppress(StudyGoneError):  # which may be why we stop
                    tick()
                time.sleep(POLL_S / 2)
        finally:  # Ctrl-C ends the waiting, too, where nobody made a request of it
            if any(child.runs for child in running):
                for child in running:
                    assert child.process is not None
                    child.process.end()
            for child in children:
                if child.process is not None:  # whoever was dead before we asked had failed
                    with contextlib.suppress(*DATABASE_FAILURES):  # then its lease runs out
                        self._take_back(child, state="returned" if child in running else "lost")

    def _take_back(self, child: Child, *, state: str = "lost") -> int:
        """A process that has ended holds nothing any more:
        hand back at once instead of waiting for its lease. Returns how many pieces of work it held.
        """
        self.deliver()
        held = sum(queue.reap(worker=child.name, state=state) for queue in self.queues)
        for opened in self.studies:
            opened.roster.leave(child.name)
        return held

    def _persist(self, action: Callable[[], T], what: str) -> T:
        return persistently(action, what, give_up=lambda: self.stop.first is not None)

    def _counts(self, queue: Queue[Any]) -> Counts:
        return self._persist(queue.counts, "the budget")

    def _results(self, child: Child) -> int:
        """What the child's last worker brought to a result:
        others' results are no sign that its device works.
        """
        return self._persist(
            lambda: sum(queue.results(child.name) for queue in self.queues),
            "a look at a worker's results",
        )

    def _left(self) -> int:
        return sum(self._counts(queue).left for queue in self.queues)

    def _gave_up(self, children: list[Child]) -> TunerError:
        last = next(child for child in children if child.given_up)
        return TunerError(
            f"the workers could not be kept alive: {last_line(last.log_path)} "
            f"(whole log: {last.log_path})"
        )
