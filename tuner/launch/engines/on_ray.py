"""Ray as an engine: one actor for each worker, with a GPU or a share of cores.

Placement, restarts of what was lost and the size of the cluster are Ray's.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from tuner.errors import TunerError, UsageError
from tuner.files.plain import Label, Strict
from tuner.launch.engines.how_many import workers_asked
from tuner.launch.engines.placement import Place, Placement, PlaceState
from tuner.launch.engines.ray_connection import LOCAL, STARTED, connected, refuse_unreachable
from tuner.launch.engines.ray_place import PlacedProcess, WorkerPlace
from tuner.launch.engines.settings import read_settings
from tuner.launch.engines.worker_command import WorkerCommand
from tuner.launch.request import DeviceChoice
from tuner.storage.url import DatabaseUrl
from tuner.version import __version__

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
        if not address.is_sqlite:
            return
        hosts = {node["NodeManagerAddress"] for node in self.ray.nodes() if node["Alive"]}
        if len(hosts) > 1:
            raise UsageError(
                "an SQLite database is one file of one host, and the Ray cluster has "
                f"{len(hosts)}: share a PostgreSQL (docs/several-machines.md)"
            )

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
