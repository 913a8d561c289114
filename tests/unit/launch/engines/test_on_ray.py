"""How many workers Ray is asked for; the cluster here is made up."""

from __future__ import annotations

import types

import pytest

from tuner.errors import UsageError
from tuner.launch.engines import on_ray
from tuner.launch.engines.on_ray import RayEngine, ray_engine
from tuner.launch.request import DeviceChoice
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
    monkeypatch.setattr(on_ray, "connected", lambda _: ray)
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
