"""Databases for the integration tests, as fixtures: every contract runs on SQLite and on
PostgreSQL.

With TUNER_TEST_MARIADB=mysql://USER@HOST/ it runs on that MariaDB or MySQL too, in databases that
come and go.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.support.postgres_cluster import Cluster, running_cluster
from tests.support.small_study import definition
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL of our own, with passwords. Never skipped: without one the tests fail."""
    with running_cluster() as cluster:
        yield cluster


MARIADB = os.environ.get("TUNER_TEST_MARIADB")


@pytest.fixture(params=["sqlite", "postgresql", *(["mariadb"] if MARIADB else [])])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, password included, once on each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    if request.param == "mariadb":
        yield from _mariadb(MARIADB or "")
        return
    yield from _postgresql(request.getfixturevalue("postgres"))


SQLITE_ALONE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For a test that asks nothing of storage itself: that all databases keep the contracts is tested
in tests/integration/storage, and where several processes are at one study."""


@pytest.fixture
def postgresql_alone(postgres: Cluster) -> Iterator[str]:
    """The same on PostgreSQL alone, for tests that ask nothing of storage itself."""
    yield from _postgresql(postgres)


def _postgresql(cluster: Cluster) -> Iterator[str]:
    name = cluster.create_database()
    yield cluster.url(name)
    cluster.empty_database(name)


def _mariadb(server: str) -> Iterator[str]:
    name = f"tuner_test_{uuid.uuid4().hex[:8]}"
    engine = create_engine(parse_url(server).url)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4"))
    yield f"{server.rstrip('/')}/{name}"
    with engine.begin() as connection:
        connection.execute(text(f"DROP DATABASE {name}"))
    engine.dispose()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = open_database(parse_url(database_url))
    yield opened
    opened.close()


@pytest.fixture
def study(database: Database) -> OpenStudy:
    """A study with a budget of 10 trials, its default trial waiting."""
    return create_or_resume(database, "small", definition(), trials=10)
