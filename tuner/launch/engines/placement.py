"""What an engine does for a launch: it places workers, says how they are, and ends them."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from tuner.errors import StudyGoneError, TunerError, UsageError
from tuner.files.plain import explained
from tuner.files.toml_file import read_toml
from tuner.launch.request import DeviceChoice, Outcome, StopRequests
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.retry import persistently
from tuner.storage.url import DatabaseUrl

# The command line of a worker that an engine places: the same on all of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """What each of the workers is to do, and on what kind of device."""

    studies: str
    """Their names, with commas."""
    address: DatabaseUrl
    """With its password: it goes into the environment of a worker, never on a command line."""
    cores: int | None
    """So many of the host's cores, which no other worker there has; None: a GPU."""
    verify: bool = False
    task: Path | None = None
    """The task file, where there is one; the worker's host has it under the same path."""
    data_dir: str | None = None
    """A folder, absolute, or a URL."""
    hang_limit_s: float | None = None
    trusted_code: tuple[str, ...] = ()
    """Hashes of files that the database has and the worker's host may not have."""

    def words(self) -> tuple[str, ...]:
        """The command line, from `tuner` on. It names no secret."""
        words = ["tuner", "worker", "--study", self.studies, "--keep-alive"]
        words += ["--gpu", "free"] if self.cores is None else ["--cpu", "--cores", self._cores]
        limit = None if self.hang_limit_s is None else f"{self.hang_limit_s:g}s"
        task = None if self.task is None else str(self.task.absolute())
        words += worker_options(self.verify, task, self.data_dir, self.trusted_code, limit)
        return tuple(words)

    @property
    def _cores(self) -> str:
        return f"free:{self.cores}"


def worker_options(
    verify: bool,
    task: str | None,
    data_dir: str | None,
    trusted_code: Sequence[str],
    hang_limit: str | None = None,
) -> list[str]:
    """What every worker of a launch is told, as words of a command line."""
    words = ["--verify"] if verify else []
    told = {"--task": task, "--data-dir": data_dir, "--hang-limit": hang_limit}
    told["--trust-code"] = ",".join(trusted_code) or None
    return words + [
        word for flag, value in told.items() if value is not None for word in (flag, value)
    ]


class PlaceState(StrEnum):
    """What a worker that was asked for is at."""

    WAITING = "waiting"
    """The engine has not begun it: it waits for a device, or for its turn."""
    WORKING = "working"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One worker that was asked for, as the engine last knew it."""

    name: str
    """As the engine calls it."""
    state: PlaceState
    why: str = ""
    """For what it waits, or the last line that it said."""
    code: int | None = None
    """How it ended; None before that, and where the engine does not say."""

    @property
    def failed(self) -> bool:
        """Whether it ended before its work was done."""
        return self.state is PlaceState.ENDED and self.code != 0


class Placement(Protocol):
    """Workers that were placed, as long as its context lasts."""

    def look(self) -> Sequence[Place]:
        """All of them. It may take a while, and be some seconds old."""

    def stop(self) -> None:
        """Ask all to hand back what they run, and to end."""

    def again(self) -> None:
        """Begin anew those that have ended."""


class Engine(Protocol):
    """Places workers."""

    @property
    def label(self) -> str:
        """What it is, for people: `Ray at 10.0.0.1:6379`."""

    @property
    def notice(self) -> str:
        """What to say where the choice was ours; empty where there is nothing."""

    @property
    def workers(self) -> int:
        """How many it places."""

    @property
    def cores(self) -> int | None:
        """Cores of each; None: each has a GPU."""

    def check(self, address: DatabaseUrl) -> None:
        """Before anything is written.

        Raises:
            UsageError: what was asked for cannot be placed there, or cannot reach the database.
            TunerError: it cannot be reached.
        """

    def place(self, command: WorkerCommand) -> AbstractContextManager[Placement]:
        """Have so many workers work. At the context's end none of them is left.

        Raises:
            TunerError: it refuses.
        """

    def in_words(self, command: WorkerCommand) -> str | Mapping[str, str]:
        """What it would be told, to be given to it by hand: a script, or values to fill in.

        Raises:
            UsageError: it is told nothing that could be written down.
        """


# What an engine is told beside the number of workers: `KEY=VALUE` with commas, or a TOML file.


def refuse_sqlite(address: DatabaseUrl, why: str) -> None:
    """Raises UsageError where `address` is one file of one host; `why` that does not do."""
    if address.is_sqlite:
        raise UsageError(
            f"an SQLite database is one file of one host, and {why}: share a PostgreSQL "
            "(docs/several-machines.md)"
        )


Settings = TypeVar("Settings", bound=BaseModel)


def read_settings(kind: type[Settings], text: str | None, *, table: str) -> Settings:
    """The settings as typed, those that were not said with their defaults.

    Args:
        kind: its fields are the keys.
        text: `KEY=VALUE` with commas, or a path that ends in `.toml`; None: nothing is said.
        table: the file's table that is meant, `slurm` for `[slurm]`.

    Raises:
        UsageError: a key that is none, a value that its key does not take, or a file that is
            missing or wrong.
    """
    keys = [field.alias or name for name, field in kind.model_fields.items()]
    if text is None:
        said: Mapping[str, object] = {}
    elif text.endswith(".toml") and text.partition("=")[0].strip() not in keys:
        said = _table(Path(text).expanduser(), table)
    else:
        said = _pairs(text)
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        raise UsageError(
            f"--placement: {explained(error)}; its keys are {', '.join(keys)}"
        ) from None


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--placement: {pair!r} is no KEY=VALUE; expected e.g. partition=gpu,time=2:00:00, "
                "or the path of a .toml file"
            )
        if key.strip() in found:
            raise UsageError(f"--placement: {key.strip()!r} is named twice; name each key once")
        found[key.strip()] = value.strip()
    return found


def _table(path: Path, table: str) -> Mapping[str, object]:
    content = read_toml(path).data
    found = content.get(table)
    if not isinstance(found, dict):
        raise UsageError(f"--placement: {path} has no table [{table}]")
    return found


# How many workers an engine is to place, where it cannot tell how many GPUs there are.


def workers_asked(choice: DeviceChoice) -> int:
    """The number that `--gpus` or `--workers` says.

    Raises:
        UsageError: neither does, or it is no number.
    """
    if choice.cpu:
        if choice.workers is None:
            raise UsageError(f"--cpu --on {choice.on}: say how many workers with --workers N")
        return choice.workers
    wanted = choice.gpus
    if wanted is None:
        raise UsageError(f"--on {choice.on}: say how many GPUs with --gpus N, or --cpu --workers N")
    if not wanted.isdecimal() or not wanted.isascii() or not 0 < len(wanted) < 7:  # noqa: PLR2004
        raise UsageError(
            f"--gpus: {wanted!r} with --on {choice.on} is how many GPUs; expected e.g. 4"
        )
    if int(wanted) == 0:
        raise UsageError(f"--gpus: 0 with --on {choice.on}; expected at least 1")
    return int(wanted)


# A launch whose workers an engine has placed: it looks on, takes back what is lost, and ends.


T = TypeVar("T")
POLL_S = 0.25
LOOK_S, REAP_S = 1.0, 5.0
PATIENT_S = 10.0
"""Engines take seconds to place a worker: so long a wait is nothing to speak of."""
STOP_GRACE_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PlacedWorkers:
    """Has `engine` place workers until the `queues` are empty."""

    queues: Sequence[Queue[Any]]
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
                for queue in self.queues:
                    self._persist(queue.reap, "a look for lost work")
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
        return sum(self._persist(queue.counts, "the budget").left for queue in self.queues)

    def _persist(self, action: Callable[[], T], what: str) -> T:
        return persistently(action, what, give_up=lambda: self.stop.first is not None)


def _with(code: int | None) -> str:
    return "" if code is None else f" with exit code {code}"
