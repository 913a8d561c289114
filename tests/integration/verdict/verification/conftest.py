"""Studies that are verified again and again: recorded once, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import delete

from tests.support.postgres_cluster import Cluster
from tests.support.recorded_studies import record_study
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study


@pytest.fixture(scope="module")
def recorded(postgres: Cluster) -> Iterator[Database]:
    """Studies of two variants, of 0 to 2 trials, and of another device, recorded once: only their
    runs change."""
    url = postgres.url(postgres.create_database())
    for variant in ("original", "rmsnorm"):
        record_study(url, variant=variant, trials=8)
    for trials in range(3):
        record_study(url, variant="rmsnorm", trials=trials, name=f"few-{trials}")
    record_study(url, variant="rmsnorm", trials=1, name="elsewhere", device="Another CPU, 2 cores")
    record_study(url, variant="original", trials=40, name="many")
    database = open_database(parse_url(url), create=False)
    yield database
    database.close()


@pytest.fixture
def database(recorded: Database) -> Database:
    with recorded.engine.begin() as connection:
        connection.execute(delete(schema.work).where(schema.work.c.kind == "run"))
    return recorded


@pytest.fixture
def studies(database: Database) -> list[OpenStudy]:
    return [open_study(database, name) for name in ("demo-original", "demo-rmsnorm")]
