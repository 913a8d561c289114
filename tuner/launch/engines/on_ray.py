"""Ray as an engine: one actor for each worker, with a GPU or a share of cores.

Placement, restarts of what was lost and the size of the cluster are Ray's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import Field

from tuner.errors import INTERRUPTED, TERMINATED, TunerError, UsageError
from tuner.files.child import ChildProcess, last_line
from tuner.files.environment import STORAGE_VARIABLE
from tuner.files.plain import Label, Strict
from tuner.launch.engines.placement import (
    Place,
    Placement,
    PlaceState,
    WorkerCommand,
    read_settings,
    refuse_sqlite,
    workers_asked,
)
from tuner.launch.request import DeviceChoice
from tuner.storage.url import DatabaseUrl
from tuner.version import __version__
from tuner.worker.process import MAX_RESTARTS

# The connection of this process to a Ray cluster.


ADDRESS_VARIABLE = "RAY_ADDRESS"
CLUSTER, LOCAL = "tuner", "tuner-local"
"""The namespace of our actors, in a cluster that runs already and in one that is started here."""
STARTED = (
    "no Ray cluster runs on this host: one is started here for this command, and ends with it "
    f"(another cluster: {ADDRESS_VARIABLE}=HOST:PORT)"
)
_REFUSED = "Unauthenticated"
REACH_S = 5.0


def connected(address: str | None, *, may_start: bool = False) -> Any:
    """The module `ray`, connected to the cluster at `address` from now on; None: the one that
    RAY_ADDRESS names, or that runs on this host. Where none does and none is named, one of this
    host alone is started if it `may_start`, as Ray's users expect.

    Raises:
        UsageError: the address is none.
        TunerError: no cluster can be reached there.
    """
    where = address or os.environ.get(ADDRESS_VARIABLE)
    if where:
        refuse_unreachable(where)
    import ray

    if ray.is_initialized():
        return ray
    with _heard() as heard:
        try:
            try:
                _begin(ray, address or "auto", CLUSTER)
            except ConnectionError:
                if where or not may_start or _REFUSED in heard():
                    raise
                _begin(ray, "local", LOCAL)
        except Exception as error:  # noqa: BLE001 - it raises whatever its parts raise
            said = heard()
            why = "it takes no such token" if _REFUSED in said else _first_line(error)
            raise unreachable(where, why) from None
    return ray


def _begin(ray: Any, address: str, namespace: str) -> None:
    level = logging.WARNING
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=level)


def unreachable(where: str | None, why: str) -> TunerError:
    return TunerError(
        f"no Ray cluster can be reached at {where or 'this host'}: {why.rstrip('. ')}; start one "
        f"with 'ray start --head', name another with {ADDRESS_VARIABLE}=HOST:PORT, and if it asks "
        "for a token, set RAY_AUTH_TOKEN"
    )


def refuse_unreachable(where: str) -> None:
    """At once: Ray itself would try for minutes.

    Raises:
        UsageError: the address is none.
        TunerError: nobody listens there.
    """
    host, colon, port = where.removeprefix("ray://").partition("/")[0].rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - ports
        if where in ("auto", "local"):
            return
        raise UsageError(f"{where!r} is no address of a Ray cluster; expected HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except OSError as error:
        raise unreachable(where, error.strerror or str(error)) from None


@contextmanager
def _heard() -> Iterator[Callable[[], str]]:
    """What is written to stderr meanwhile, kept back: Ray's C++ parts write there past Python, and
    the reason why a cluster refuses stands nowhere else.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:

        def so_far() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        os.dup2(file.fileno(), 2)
        try:
            yield so_far
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


# What runs on a Ray cluster: an actor with one worker below it, which ends with the actor.


LONG_S = 10.0
"""Whatever ends a worker that lived so long did not come with it."""


@dataclass(frozen=True, slots=True)
class PlacedProcess:
    """How the worker of an actor is."""

    host: str
    pid: int
    code: int | None
    """Its exit code, once it has ended."""
    last_words: str


class WorkerPlace:
    """One worker, as long as the actor lives."""

    def __init__(self, words: Sequence[str], storage: str, folder: str, version: str) -> None:
        """Begin the worker.

        Args:
            words: its command line, from `tuner` on.
            storage: the database's address, with its password.
            folder: where it works, if this node has such a folder.
            version: of the tuner that asks.
        """
        self._words = words
        self._environment = {**os.environ, STORAGE_VARIABLE: storage}
        self._folder = _own_folder() if _logs_of(Path(folder)) is None else Path(folder)
        self._refusal = ""
        if version != __version__:
            self._refusal = (
                f"{platform.node()} has tuner {__version__}, the launch is of tuner {version}; "
                "install the same on all nodes"
            )
        self._child: ChildProcess | None = None
        self._began = 0.0
        self._kills = 0
        """In a row, each soon after it had begun."""
        self._stopped = False
        self.begin()

    def begin(self) -> None:
        """Have it work, where it does not."""
        if self._refusal or (self._child is not None and self._child.runs):
            return
        logs = _logs_of(self._folder)
        if logs is None:
            self._refusal = f"{platform.node()}: {self._folder} cannot be written to"
            return
        self._log = logs / f"placed-{platform.node()}-{os.getpid()}.log"
        self._began = time.monotonic()
        command = [sys.executable, "-m", "tuner", *self._words[1:]]
        with self._log.open("ab") as log:
            self._child = ChildProcess(
                "the worker",
                [*command, "--supervised-by", str(os.getpid())],
                folder=self._folder,
                environment=self._environment,
                log=log,
            )

    def look(self) -> PlacedProcess:
        """How the worker is. One that somebody killed is begun again first: it has not failed."""
        if self._child is None:
            return PlacedProcess(platform.node(), 0, UsageError.exit_code, self._refusal)
        code = self._child.code
        if code is not None and self._was_killed(code):
            self.begin()
            code = None
        words = last_line(self._log) if code is not None else ""
        return PlacedProcess(platform.node(), self._child.popen.pid, code, words)

    def stop(self) -> None:
        """Have the worker hand back what it runs."""
        self._stopped = True
        if self._child is not None:
            self._child.popen.terminate()

    def _was_killed(self, code: int) -> bool:
        """Whether it was, and not so often that it must be the worker's own doing."""
        if self._stopped or not (code < 0 or code in (INTERRUPTED, TERMINATED)):
            return False
        lived_s = time.monotonic() - self._began
        self._kills = self._kills + 1 if lived_s < LONG_S else 1
        return self._kills <= MAX_RESTARTS


def _logs_of(folder: Path) -> Path | None:
    """Where a worker's words go that works in this folder, which is to be there; None where
    nothing can be written.
    """
    logs = folder / "storage" / "logs"
    if not folder.is_dir():
        return None
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return logs if os.access(logs, os.W_OK) else None


def _own_folder() -> Path:
    """Of this user on this node: what a worker left there is found by the next one."""
    folder = platformdirs.user_state_path("tuner")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
ANSWER_S = 2.0
"""So long a look waits for actors: one that is being placed says nothing."""
LOST_S = 20.0
"""So long a cluster may be away."""
ALL = "all"
NO_PRINT = (
    "--print shows the script for Slurm or the values for Kubernetes, and for Ray there is "
    "neither: leave --print out, or say --on slurm or --on k8s"
)


class RaySettings(Strict):
    """The keys of `--placement` that Ray takes."""

    cores: int = Field(1, ge=1, le=4096)
    """Of each worker; beside a GPU, what Ray sets aside for it."""
    accelerator: Label | None = None
    """As Ray calls a GPU model: `H100`."""


def ray_engine(choice: DeviceChoice) -> RayEngine:
    """The cluster that `--on` names, connected to.

    Raises:
        UsageError: what was asked for is no number of workers, or nothing of the kind is there.
        TunerError: the cluster cannot be reached.
    """
    settings = read_settings(RaySettings, choice.placement, table="ray")
    if choice.print_only:
        raise UsageError(NO_PRINT)
    ray = connected(None if choice.on == "ray" else choice.on, may_start=True)
    workers = _gpus(ray) if choice.gpus in (None, ALL) and not choice.cpu else workers_asked(choice)
    return RayEngine(ray, settings, workers=workers, cores=settings.cores if choice.cpu else None)


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A cluster that this process is connected to."""

    ray: Any
    """The module, whose functions have no types."""
    settings: RaySettings
    workers: int
    cores: int | None

    @property
    def label(self) -> str:
        return f"Ray at {self.ray.get_runtime_context().gcs_address}"

    @property
    def notice(self) -> str:
        return STARTED if self.ray.get_runtime_context().namespace == LOCAL else ""

    def check(self, address: DatabaseUrl) -> None:
        hosts = {node["NodeManagerAddress"] for node in self.ray.nodes() if node["Alive"]}
        if len(hosts) > 1:
            refuse_sqlite(address, f"the Ray cluster has {len(hosts)}")

    @contextmanager
    def place(self, command: WorkerCommand) -> Iterator[Placement]:
        options: dict[str, Any] = {
            "num_cpus": self.settings.cores,
            "num_gpus": 0 if self.cores is not None else 1,
            "max_restarts": -1,  # a preempted node is nobody's fault
        }
        if self.settings.accelerator is not None:
            options["accelerator_type"] = self.settings.accelerator
        actor = self.ray.remote(WorkerPlace).options(**options)
        given = command.words(), command.address.full(), str(Path.cwd()), __version__
        actors = [_Actor(f"{n + 1}", actor.remote(*given)) for n in range(self.workers)]
        try:
            yield RayPlacement(self.ray, actors)
        finally:
            for each in actors:
                each.kill()

    def in_words(self, command: WorkerCommand) -> str:
        del command
        raise UsageError(NO_PRINT)


@dataclass(slots=True)
class _Actor:
    """One of them, and what was last heard of it."""

    name: str
    handle: Any
    asked: Any = None
    """The answer that has not come yet."""
    place: Place = field(init=False)
    killed: bool = False

    def __post_init__(self) -> None:
        self.place = self._waits("Ray has no place for it yet")

    @property
    def heard(self) -> bool:
        return self.place.state is not PlaceState.WAITING

    def ask(self) -> Any:
        """A reference to how its worker is."""
        if self.asked is None:
            self.asked = self.handle.look.remote()
        return self.asked

    def take_in(self) -> None:
        """The answer, which is there."""
        import ray
        from ray.exceptions import ActorUnavailableError, RayActorError

        reference, self.asked = self.asked, None
        try:
            self.place = self._as_place(ray.get(reference))
        except ActorUnavailableError:
            self.place = self._waits("Ray begins it anew")
        except RayActorError as error:
            why = _cause(str(error))
            self.place = Place(name=self.name, state=PlaceState.ENDED, code=1, why=why)

    def kill(self) -> None:
        import ray

        if not self.killed:
            self.killed = True
            with contextlib.suppress(Exception):  # it may be gone, and the cluster, too
                ray.kill(self.handle, no_restart=True)

    def _waits(self, why: str) -> Place:
        return Place(name=self.name, state=PlaceState.WAITING, why=why)

    def _as_place(self, seen: PlacedProcess) -> Place:
        name = f"{self.name} on {seen.host}"
        if seen.code is None:
            return Place(name=name, state=PlaceState.WORKING)
        return Place(name=name, state=PlaceState.ENDED, code=seen.code, why=seen.last_words)


@dataclass(slots=True)
class RayPlacement:
    """The actors of a launch."""

    ray: Any
    actors: Sequence[_Actor]
    _lost_since: float | None = None

    def look(self) -> Sequence[Place]:
        ray = self.ray
        asked = {each.ask(): each for each in self.actors if not each.killed}
        if asked:
            there, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S)
            for reference in there:
                asked[reference].take_in()
        self._refuse_lost_cluster()
        return [each.place for each in self.actors]

    def _refuse_lost_cluster(self) -> None:
        """Where nobody answers and the cluster's head cannot be reached: Ray itself would end this
        process after a minute.

        Raises:
            TunerError: so it has been for a while.
        """
        if any(each.place.state is not PlaceState.WAITING for each in self.actors):
            self._lost_since = None
            return
        where = self.ray.get_runtime_context().gcs_address
        try:
            refuse_unreachable(where)
            self._lost_since = None
        except TunerError:
            now = time.monotonic()
            self._lost_since = self._lost_since or now
            if now > self._lost_since + LOST_S:
                raise TunerError(
                    f"the Ray cluster at {where} is lost; its workers hand back what they ran, and "
                    "the same command goes on once there is one again"
                ) from None

    def stop(self) -> None:
        # One of which the last look heard nothing may have begun, and then hands back its work.
        if any(not each.heard and not each.killed for each in self.actors):
            with contextlib.suppress(TunerError):
                self.look()
        for each in self.actors:
            if each.heard and not each.killed:
                each.handle.stop.remote()
            else:  # Ray would still begin it
                each.kill()
                each.place = Place(name=each.name, state=PlaceState.ENDED)

    def again(self) -> None:
        for each in self.actors:
            if each.place.state is PlaceState.ENDED:
                each.handle.begin.remote()


def _gpus(ray: Any) -> int:
    """How many the cluster has now."""
    there = int(ray.cluster_resources().get("GPU", 0))
    if not there:
        raise UsageError(
            "the Ray cluster has no GPU now: say --gpus N for one that grows, or --cpu --workers N"
        )
    return there


def _cause(said: str) -> str:
    """Of an error that came from a node: its last line is the error itself, what stands before is
    where it was raised, in colours.
    """
    lines = [line.strip() for line in _ESCAPES.sub("", said).splitlines()]
    return next((line for line in reversed(lines) if line), "it gave no reason")
