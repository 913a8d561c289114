"""How many workers Ray is asked for; the cluster here is made up."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path

import pytest

from tuner.errors import TunerError, UsageError
from tuner.launch.engines import on_ray
from tuner.launch.engines.on_ray import (
    RayEngine,
    RayPlacement,
    _Actor,
    _cause,
    _logs_of,
    connected,
    ray_engine,
)
from tuner.launch.engines.placement import Place, PlaceState
from tuner.launch.request import DeviceChoice
from tuner.launch.where import choose_where
from tuner.storage.url import parse_url


def engine(
    monkeypatch: pytest.MonkeyPatch,
    *,
    gpus: float = 0.0,
    hosts: int = 1,
    cpu: bool = False,
    workers: int | None = None,
    wanted: str | None = None,
) -> RayEngine:
    nodes = [{"Alive": True, "NodeManagerAddress": f"10.0.0.{n}"} for n in range(hosts)]
    nodes.append({"Alive": False, "NodeManagerAddress": "10.0.1.1"})
    ray = types.SimpleNamespace(cluster_resources=lambda: {"GPU": gpus}, nodes=lambda: nodes)
    monkeypatch.setattr(on_ray, "connected", lambda *_, **__: ray)
    return ray_engine(DeviceChoice(on="ray", cpu=cpu, workers=workers, gpus=wanted))


def test_all_gpus_that_are_there_or_so_many_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert engine(monkeypatch, gpus=3.0).workers == 3
    assert engine(monkeypatch, gpus=3.0, wanted="all").cores is None
    assert engine(monkeypatch, gpus=0.0, wanted="8").workers == 8  # a cluster may grow
    with pytest.raises(UsageError, match="has no GPU now"):
        engine(monkeypatch)


def test_cores_are_asked_for_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    found = engine(monkeypatch, cpu=True, workers=3)
    assert (found.workers, found.cores) == (3, 1)
    with pytest.raises(UsageError, match="--workers N"):
        engine(monkeypatch, cpu=True)


def test_an_sqlite_file_is_shared_by_one_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    file, server = parse_url("sqlite:///x.db"), parse_url("postgresql://host/tuner")
    engine(monkeypatch, gpus=1.0, hosts=1).check(file)
    engine(monkeypatch, gpus=1.0, hosts=2).check(server)
    with pytest.raises(UsageError, match="the Ray cluster has 2"):
        engine(monkeypatch, gpus=1.0, hosts=2).check(file)


def test_a_worker_that_had_not_been_heard_yet_is_asked_to_stop_and_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It hands back what it runs; one that Ray has no place for does not begin any more."""
    told: list[str] = []

    def actor(name: str) -> _Actor:
        stop = types.SimpleNamespace(remote=lambda: told.append(name))
        look = types.SimpleNamespace(remote=lambda: f"how {name} is")
        return _Actor(name=name, handle=types.SimpleNamespace(stop=stop, look=look))

    def take_in(self: _Actor) -> None:
        self.place = Place(name=self.name, state=PlaceState.WORKING)

    def answered(references: list[str], **_: object) -> tuple[list[str], list[str]]:
        return [each for each in references if "begun" in each], []

    monkeypatch.setattr(_Actor, "take_in", take_in)
    # Ray itself would start a cluster before it kills anything.
    kills = types.SimpleNamespace(kill=lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "ray", kills)
    begun, pending = actor("begun"), actor("pending")
    RayPlacement(ray=types.SimpleNamespace(wait=answered), actors=[begun, pending]).stop()
    assert told == ["begun"]
    assert not begun.killed
    assert pending.killed
    assert pending.place.state is PlaceState.ENDED


def test_what_an_actor_died_of_is_told_without_where_it_was_and_without_colours() -> None:
    said = (
        "The actor died because of an error raised in its creation task, \x1b[36mray::Place()"
        '\x1b[39m\n  File "place.py", line 7\n'
        "PermissionError: [Errno 13] Permission denied: '/sys/x'\n\n"
    )
    assert _cause(said) == "PermissionError: [Errno 13] Permission denied: '/sys/x'"
    assert _cause(" \n") == "it gave no reason"


def test_a_folder_that_cannot_be_written_to_is_not_worked_in(tmp_path: Path) -> None:
    assert _logs_of(tmp_path) == tmp_path / "storage" / "logs"
    assert _logs_of(tmp_path / "away") is None
    assert not (tmp_path / "away").exists()
    assert _logs_of(Path("/proc")) is None


def test_where_no_cluster_runs_and_none_is_named_one_of_this_host_is_started_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[str, str]] = []

    def init(*, address: str, namespace: str, **_: object) -> None:
        if address == "auto":
            raise ConnectionError("Could not find any running Ray instance.")
        begun.append((address, namespace))

    def context() -> types.SimpleNamespace:
        return types.SimpleNamespace(namespace=begun[-1][1])

    ray = types.SimpleNamespace(
        init=init, is_initialized=lambda: bool(begun), get_runtime_context=context
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(TunerError, match="no Ray cluster can be reached at this host"):
        connected(None)  # as the doctor looks
    choice = DeviceChoice(on="ray", cpu=True, workers=1)
    for _ in range(2):  # a retune asks once a stage
        where = choose_where(choice, environment={})
        assert where.notice.startswith("no Ray cluster runs on this host: one is started here")
    assert begun == [("local", "tuner-local")]
    with pytest.raises(
        UsageError, match=r"--print shows the script for Slurm .* leave --print out"
    ):
        choose_where(dataclasses.replace(choice, print_only=True), environment={})
