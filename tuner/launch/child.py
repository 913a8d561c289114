"""A device and the worker process on it, with what the supervisor knows of both."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import secrets
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import WAITING_FOR_DEVICE
from tuner.files.child import ChildError, ChildProcess, Lines
from tuner.worker.process import IDLE, STARTING, TRAINER, TRAINING, WAITING, WORKER, Beat

# Kills workers that hang, judged by their heartbeat: in a thread of its own, without the
# database.


FIRST_LIMIT_S = 1800.0
"""Without a life sign while nothing tells how long things take:
starting, setting up, compiling, a first epoch."""
FLOOR_S = 60.0
"""However short the epochs are: a machine may stall."""
EPOCHS = 10.0
"""Times the trial's longest epoch."""
LOOK_S = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """A life sign, and when it came."""

    beat: Beat = field(default_factory=lambda: Beat(STARTING))
    at: float = field(default_factory=lambda: time.monotonic())  # noqa: PLW0108 - tests stop it


@dataclass(slots=True, eq=False)
class Child:
    """The worker on one device, and after its end the next."""

    device: Gpu | CpuCores
    log_path: Path
    process: ChildProcess | None = None
    lines: Lines | None = None
    """Where its life signs arrive, from its start until nobody watches it any more."""
    lives: dict[str, Heard] = field(default_factory=dict)
    """The last sign of each life that has given one; the worker's from when it is watched."""
    killed: bool = False
    name: str = ""
    """The worker's, a new one with each process."""
    failures: int = 0
    """Workers on this device that ended without a result
    of their own, since the last one that had some."""
    budget_at_start: int = 0
    not_before: float = 0.0
    done: bool = False
    given_up: bool = False

    @staticmethod
    def on(device: Gpu | CpuCores, log_folder: Path) -> Child:
        return Child(device, log_folder / f"worker-{platform.node()}-{_kind(device)}.log")

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.runs

    @property
    def is_due(self) -> bool:
        """Whether its next worker may be started by now."""
        return time.monotonic() >= self.not_before

    @property
    def beat(self) -> Beat:
        """What it is at: its trainer, where it has one."""
        return self.lives.get(TRAINER, self.lives[WORKER]).beat

    def listen(self) -> None:
        """Take in what came through the pipe."""
        assert self.lines is not None, "it is watched"
        with contextlib.suppress(ChildError):  # as noise is that is no line at all
            for line in self.lines.came():
                with contextlib.suppress(ValueError):
                    beat = Beat.from_line(line)
                    self.lives[beat.source] = Heard(beat)

    def wait(self, seconds: float) -> None:
        """Before the next worker is started."""
        self.process, self.not_before = None, time.monotonic() + seconds

    def start(
        self,
        command: Sequence[str],
        more: Sequence[str],
        environment: Mapping[str, str],
        *,
        told_later: bool = False,
    ) -> None:
        """A new worker: `command`, then what makes it the worker of this device, then `more`.

        With `told_later` it waits at its standard input until `tell`.
        """
        self.name = f"{platform.node()[:60]}-{_kind(self.device)[:40]}-{secrets.token_hex(4)}"
        environment = dict(environment)
        words = [*command, "--supervised-by", str(os.getpid()), "--name", self.name]
        if isinstance(self.device, Gpu):
            words += ["--gpu", ",".join(map(str, range(len(self.device.devices))))]
            environment["CUDA_VISIBLE_DEVICES"] = self.device.uuid
        else:
            words += ["--cpu", "--cores", ",".join(map(str, self.device.cores))]
        listening, beating = os.pipe()
        words += ["--heartbeat", str(beating), *more]
        # A group of its own: Ctrl-C reaches the supervisor alone, which then asks the workers to
        # hand back. No session of its own: a stopped group that loses its parent in the session
        # gets SIGHUP and SIGCONT from the kernel, so when this process is killed, also a worker
        # that somebody had stopped goes on and hears that it shall end.
        try:
            with self.log_path.open("ab") as log:
                self.process = ChildProcess(
                    "the worker",
                    words,
                    environment=environment,
                    log=log,
                    told=told_later,
                    passed=(beating,),
                )
        finally:
            os.close(beating)
        self.lines = Lines(listening, self.device.label)

    def tell(self, line: str) -> bool:
        """Give the line that a worker waits for; whether it was there to hear it."""
        assert self.process is not None, "it was started, and waits"
        return self.process.give(line.encode() + b"\n")

    def deafen(self) -> None:
        """Nobody hears its life signs any more."""
        if self.lines is not None:
            os.close(self.lines.pipe)
        self.lines = None


@dataclass(slots=True)
class Watchdog:
    """Looks at all workers twice a second, as long as its context lasts.

    `limit_s`, where given, takes the place of both fixed limits once a worker has started; epochs
    that take longer still count tenfold.
    """

    limit_s: float | None = None
    look_s: float = LOOK_S
    _watched: list[Child] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self, child: Child) -> None:
        """The worker that was started there, from now on."""
        child.lives, child.killed = {WORKER: Heard()}, False
        with self._lock:
            self._watched.append(child)

    def forget(self, child: Child) -> None:
        """The worker has ended."""
        with self._lock:
            self._watched.remove(child)
            child.deafen()

    def limit_of(self, beat: Beat) -> float:
        """Seconds that may pass after this life sign."""
        if beat.phase == IDLE:
            return math.inf
        if beat.phase == STARTING:  # nobody knows how long a machine takes to import everything
            return FIRST_LIMIT_S
        first, floor = (
            (FIRST_LIMIT_S, FLOOR_S) if self.limit_s is None else (self.limit_s, self.limit_s)
        )
        if beat.phase == TRAINING:
            return max(floor, EPOCHS * beat.longest_epoch_s)
        return floor if beat.phase in (WAITING, WAITING_FOR_DEVICE) else first

    def look(self) -> None:
        """Kill whoever has been silent for too long."""
        with self._lock:
            for each in self._watched:
                each.listen()
                for heard in each.lives.values():
                    self._judge(each, heard)

    def _judge(self, each: Child, heard: Heard) -> None:
        silent_s, limit_s = time.monotonic() - heard.at, self.limit_of(heard.beat)
        if silent_s <= limit_s or each.killed or each.process is None or not each.process.runs:
            return
        each.killed = True
        _log.error(
            "the %s on %s hangs: no life sign for %.0f s (limit %.0f s), last at: %s; it is killed",
            heard.beat.source,
            each.device.label,
            silent_s,
            limit_s,
            heard.beat.phase,
        )
        each.process.send_signal(signal.SIGKILL)

    def _run(self) -> None:
        while not self._over.wait(self.look_s):
            self.look()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()
        for each in list(self._watched):
            self.forget(each)


def _kind(device: Gpu | CpuCores) -> str:
    """The device in a file's or a worker's name."""
    return (
        f"gpu{'-'.join(str(gpu.number) for gpu in device.devices)}"
        if isinstance(device, Gpu)
        else f"cpu{'-'.join(map(str, device.cores))}"
    )


# Workers started before it is known what they will work at: they import meanwhile what they need.


STUDIES_FOLLOW = "-"
"""In place of their names."""


@dataclass(slots=True)
class EarlyWorkers:
    """The first worker of each device, as long as its context lasts; what nobody took is ended."""

    devices: Sequence[Gpu | CpuCores] = ()
    command: Sequence[str] = ()
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    log_folder: Path = Path()
    _waiting: dict[str, Child] = field(default_factory=dict)
    """By the label of the device."""

    def __enter__(self) -> Self:
        for device in self.devices:
            self.log_folder.mkdir(parents=True, exist_ok=True)
            child = Child.on(device, self.log_folder)
            child.start(
                [*self.command, "--study", STUDIES_FOLLOW],
                self.options,
                self.environment,
                told_later=True,
            )
            self._waiting[device.label] = child
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting:
            self.keep(())
            with contextlib.suppress(OSError):  # not there, or it holds others' logs
                self.log_folder.rmdir()

    def keep(self, devices: Sequence[Gpu | CpuCores]) -> None:
        """End all but those on these devices."""
        kept = {device.label for device in devices}
        ended = [label for label in self._waiting if label not in kept]
        for child in [self._waiting.pop(label) for label in ended]:
            _end(child)
            with contextlib.suppress(OSError):
                if not child.log_path.stat().st_size:
                    child.log_path.unlink()

    def take(self, device: Gpu | CpuCores, studies: str) -> Child | None:
        """The worker that waits on this device, once it has heard the names of its studies: from
        now on it belongs to whoever asked. None where none is left.
        """
        child = self._waiting.pop(device.label, None)
        if child is None or child.tell(studies):
            return child
        _end(child)
        return None


def _end(child: Child) -> None:
    """Nobody watches this worker, or tells it anything."""
    assert child.process is not None, "it was started"
    child.process.end()
    child.deafen()
