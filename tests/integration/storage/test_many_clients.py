"""Many workers on one PostgreSQL that restarts meanwhile: everything is there, once, and the budget
is exact. The benchmark of this name does the same with hundreds."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.database import many_clients
from benchmarks.database.many_clients import lines, measured, sound
from tests.support.postgres_cluster import running_cluster


def test_a_dozen_workers_lose_nothing_while_their_database_restarts_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(many_clients, "DOWN_S", 0.3)
    given = argparse.Namespace(trials=60, trial_s=0.2, reads=True, restarts=2, processes=3)
    with running_cluster() as cluster:
        found = measured(cluster, 12, given)
    assert found["failures"] == []
    audit = found["audit"]
    assert sound(audit), audit
    assert (audit["finished"], audit["told_by_clients"], found["restarts"]) == (60, 60, 2)
    assert found["connections"] <= 12 * 2 + 2
    assert not sound(audit | {"lost": 1})
    assert not sound(audit | {"finished": 61})
    about = {"date": "d", "server": "s", "machine": "m", "command": "c"}
    table = lines(about | {"trial_s": 0.2, "reads": True, "figures": [found]})
    assert table[-1].startswith("| 12 | ")
    assert "yes: 60 of 60" in table[-1]
