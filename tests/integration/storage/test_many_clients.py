"""Many workers on one PostgreSQL that restarts meanwhile: everything is there, once, and the budget
is exact. The benchmark of this name does the same with hundreds."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DBAPIError

from benchmarks.database import many_clients
from benchmarks.database.many_clients import lines, measured, sound
from tests.support.postgres_cluster import Cluster, running_cluster
from tests.support.small_study import definition
from tuner.errors import StorageError
from tuner.storage.database import open_database
from tuner.storage.retry import persistently
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One that may be restarted."""
    with running_cluster() as cluster:
        yield cluster


def test_a_restart_of_postgresql_is_outlived(cluster: Cluster) -> None:
    database = open_database(parse_url(cluster.url(cluster.create_database())))
    study = create_or_resume(database, "small", definition(), trials=3)
    claim = study.ledger.claim("ann")
    assert claim is not None
    cluster.stop()
    with pytest.raises(DBAPIError):
        study.ledger.renew(claim)
    with pytest.raises(StorageError, match="check that the server runs"):
        open_database(database.address, create=False)
    with pytest.raises(StorageInternalError):
        study.optuna.get_trials()
    with ThreadPoolExecutor() as pool:
        renewed = pool.submit(
            lambda: persistently(lambda: study.ledger.renew(claim), "a lease", retry_s=200)
        )
        asked = pool.submit(lambda: persistently(lambda: study.ask(claim), "a trial", retry_s=200))
        opened = pool.submit(open_database, database.address, create=False, retry_s=200)
        time.sleep(1.0)
        assert not opened.done()
        assert not renewed.done()
        assert not asked.done()
        cluster.start()
        assert renewed.result()
        opened.result().close()
        trial = asked.result()
    assert trial is not None
    assert trial.params == definition().defaults.as_dict()
    database.close()


def test_a_dozen_workers_lose_nothing_while_their_database_restarts_twice(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_clients, "DOWN_S", 0.3)
    given = argparse.Namespace(trials=36, trial_s=0.2, reads=True, restarts=2, processes=2)
    found = measured(cluster, 12, given)
    assert found["failures"] == []
    audit = found["audit"]
    assert sound(audit), json.dumps(audit)
    assert (audit["finished"], audit["told_by_clients"], found["restarts"]) == (36, 36, 2)
    assert found["connections"] <= 12 * 2 + 2
    assert not sound(audit | {"lost": 1})
    assert not sound(audit | {"finished": 37})
    about = {"date": "d", "server": "s", "machine": "m", "command": "c"}
    table = lines(about | {"trial_s": 0.2, "reads": True, "figures": [found]})
    assert table[-1].startswith("| 12 | ")
    assert "yes: 36 of 36" in table[-1]
