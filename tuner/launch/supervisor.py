"""The supervisor: starts one worker per device, starts a dead one again, and stops them cleanly.

It never imports torch and never touches a device: a worker sees only its own GPU, through its environment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import IO, TypeVar

from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import stopped_holder
from tuner.errors import TunerError, UsageError
from tuner.launch.watchdog import Watchdog, WatchedProcess, kill
from tuner.launch.work import Work
from tuner.storage import Counts
from tuner.storage.retry import DATABASE_FAILURES, persistently
from tuner.worker import FRESH_PROCESS
from tuner.worker.afresh import MAX_RESTARTS

T = TypeVar("T")
POLL_S = 0.25
REAP_S = 5.0
STOP_GRACE_S = 60.0
FIRST_PAUSE_S = 1.0
_ASKED_TO_STOP = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""How a worker ends that somebody else told to: it goes on in a new process, and nothing is held against it."""
_log = logging.getLogger(__name__)


class Outcome(StrEnum):
    """How a launch ended."""

    FILLED = "filled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"


@dataclass(slots=True)
class _Child:
    """A device and the worker process on it, if one runs."""

    device: Gpu | CpuCores
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    watched: WatchedProcess | None = None
    name: str = ""
    """The worker's, a new one with each process."""
    failures: int = 0
    """Workers on this device that ended without a result of their own, since the last one that had some."""
    budget_at_start: int = 0
    not_before: float = 0.0
    done: bool = False
    given_up: bool = False


@dataclass(slots=True)
class Supervisor:
    """Runs workers on `devices` until the budgets of `studies` are filled.

    `worker_options` go to each worker's command line, `environment` to its environment: the database's address with
    its password travels there, never on a command line.
    """

    studies: Sequence[Work]
    devices: Sequence[Gpu | CpuCores]
    worker_options: Sequence[str]
    environment: Mapping[str, str]
    log_folder: Path
    worker_command: Sequence[str] = (sys.executable, "-m", "tuner", "worker")
    """What starts a worker; the options of `tuner worker` follow."""
    hang_limit_s: float | None = None
    """See `Watchdog`."""
    deliver: Callable[[], object] = lambda: None
    """Brings results that a worker left on this machine to the database: once its work is taken back, none counts."""
    _signals: list[int] = field(default_factory=list)
    _dog: Watchdog = field(init=False)

    def __post_init__(self) -> None:
        self._dog = Watchdog(self.hang_limit_s)

    def run(self, tick: Callable[[], None], *, timeout_s: float | None = None) -> Outcome:
        """Work; `tick` is called a few times a second. Signals are handled as long as this runs.

        Raises:
            TunerError: the workers could not be kept alive (the last line of a log says why).
        """
        self.log_folder.mkdir(parents=True, exist_ok=True)
        children = [_Child(device, self._log_path(device)) for device in self.devices]
        previous = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        with self._dog:
            try:
                return self._loop(children, tick, deadline)
            finally:
                self._stop(children, tick)
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def _loop(self, children: list[_Child], tick: Callable[[], None], deadline: float | None) -> Outcome:
        next_reap = time.monotonic() + REAP_S
        while True:
            if self._signals:
                return Outcome.INTERRUPTED if self._signals[0] == signal.SIGINT else Outcome.TERMINATED
            if deadline is not None and time.monotonic() >= deadline:
                return Outcome.TIMED_OUT
            for child in children:
                self._look_after(child)
            if time.monotonic() >= next_reap:
                next_reap = time.monotonic() + REAP_S
                for opened in self.studies:
                    self._persist(opened.ledger.reap, "a look for lost trials")
                self._call_back(children)
            tick()
            if all(child.done for child in children) and not self._call_back(children):
                if self._left() == 0 or not any(child.given_up for child in children):
                    return Outcome.FILLED
                raise self._gave_up(children)
            time.sleep(POLL_S)

    def _look_after(self, child: _Child) -> None:
        if child.done:
            return
        if child.process is None:
            if time.monotonic() >= child.not_before:
                self._start(child)
            return
        code = child.process.poll()
        if code is not None:
            self._see_to_its_end(child, code)

    def _see_to_its_end(self, child: _Child, code: int) -> None:
        """Take back what the worker held, and decide whether and when another follows it."""
        if child.watched is not None:
            self._dog.forget(child.watched)
            child.watched = None
        self._persist(lambda: self._take_back(child), "a dead worker's trial")
        if code == 0 or self._left() == 0:
            child.done = True
            return
        afresh = code == FRESH_PROCESS  # the trial that lost it its device's context is recorded, with the reason
        if not afresh:
            _log.warning(
                "the worker on %s ended with exit code %d; its log: %s", child.device.label, code, child.log_path
            )
        if self._results(child) > afresh:
            child.failures = 0
        if code not in _ASKED_TO_STOP:
            child.failures += 1
        child.process = None
        child.done = child.given_up = child.failures >= MAX_RESTARTS or code == UsageError.exit_code
        pause_s = 0.0 if afresh else FIRST_PAUSE_S * 2.0 ** max(0, child.failures - 1)
        child.not_before = time.monotonic() + pause_s
        if child.given_up:
            _log.error("the worker on %s is not started again: it ended %d times", child.device.label, child.failures)

    def _call_back(self, children: list[_Child]) -> bool:
        """Have workers started again that found nothing left to do before somebody raised the budget."""
        home = [child for child in children if child.done and not child.given_up]
        if not home:
            return False
        counts = [self._counts(opened) for opened in self.studies]
        budget = sum(each.budget for each in counts)
        if not any(each.left for each in counts):
            return False
        called = [child for child in home if child.budget_at_start < budget]
        for child in called:
            child.done, child.process = False, None
        return bool(called)

    def _start(self, child: _Child) -> None:
        names = ",".join(opened.name for opened in self.studies)
        child.name = f"{platform.node()[:60]}-{_kind(child.device)[:40]}-{secrets.token_hex(4)}"
        command = [*self.worker_command, "--study", names, "--supervised-by", str(os.getpid()), "--name", child.name]
        environment = dict(self.environment)
        if isinstance(child.device, Gpu):
            command += ["--gpu", "0"]
            environment["CUDA_VISIBLE_DEVICES"] = child.device.uuid
        else:
            command += ["--cpu", "--cores", ",".join(map(str, child.device.cores))]
        if (holder := stopped_holder(child.device.lock_names)) is not None:
            _log.warning("the worker on %s will have to wait for its device: %s", child.device.label, holder)
        child.budget_at_start = sum(self._counts(opened).budget for opened in self.studies)
        listening, beating = os.pipe()
        command += ["--pulse", str(beating), *self.worker_options]
        try:
            with child.log_path.open("ab") as log:
                child.process = self._spawn(command, environment, log, beating)
        finally:
            os.close(beating)
        child.watched = self._dog.watch(child.device.label, child.process, listening)

    @staticmethod
    def _spawn(
        command: list[str], environment: dict[str, str], log: IO[bytes], beating: int
    ) -> subprocess.Popen[bytes]:
        # A group of its own: Ctrl-C reaches the supervisor alone, which then asks the workers to hand back. No session
        # of its own: a stopped group that loses its parent in the session gets SIGHUP and SIGCONT from the kernel, so
        # when this process is killed, also a worker that somebody had stopped goes on and hears that it shall end.
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(beating,),
            process_group=0,
        )

    def _stop(self, children: list[_Child], tick: Callable[[], None]) -> None:
        """Ask the workers to hand back what they run; kill them on a second signal or when the grace is over."""
        running = [child for child in children if child.process is not None and child.process.poll() is None]
        for child in running:
            assert child.process is not None
            child.process.terminate()
        deadline = time.monotonic() + STOP_GRACE_S
        while any(child.process is not None and child.process.poll() is None for child in running):
            if len(self._signals) > 1 or time.monotonic() > deadline:
                for child in running:
                    assert child.process is not None
                    kill(child.process)
                    child.process.wait()
                break
            tick()
            time.sleep(POLL_S / 2)
        for child in children:
            if child.process is not None:  # whoever was dead before we asked had failed
                with contextlib.suppress(*DATABASE_FAILURES):  # then its lease runs out
                    self._take_back(child, state="returned" if child in running else "lost")

    def _take_back(self, child: _Child, *, state: str = "lost") -> None:
        """A process that has ended holds nothing any more: hand back at once instead of waiting for its lease."""
        self.deliver()
        for opened in self.studies:
            opened.ledger.reap(worker=child.name, state=state)
            opened.roster.leave(child.name)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signals.append(number)

    def _persist(self, action: Callable[[], T], what: str) -> T:
        return persistently(action, what, give_up=lambda: bool(self._signals))

    def _counts(self, opened: Work) -> Counts:
        return self._persist(opened.ledger.counts, "the budget")

    def _results(self, child: _Child) -> int:
        """What the child's last worker brought to a result: others' results are no sign that its device works."""
        return self._persist(
            lambda: sum(opened.ledger.results(child.name) for opened in self.studies), "a look at a worker's results"
        )

    def _left(self) -> int:
        return sum(self._counts(opened).left for opened in self.studies)

    def _log_path(self, device: Gpu | CpuCores) -> Path:
        return self.log_folder / f"worker-{platform.node()}-{_kind(device)}.log"

    def _gave_up(self, children: list[_Child]) -> TunerError:
        log = next(child.log_path for child in children if child.given_up)
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        last = lines[-1].removeprefix("tuner: error: ") if lines else "no output"
        return TunerError(f"the workers could not be kept alive: {last} (whole log: {log})")


def _kind(device: Gpu | CpuCores) -> str:
    """The device in a file's or a worker's name."""
    return f"gpu{device.number}" if isinstance(device, Gpu) else f"cpu{'-'.join(map(str, device.cores))}"
