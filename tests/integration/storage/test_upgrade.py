"""Moving a database of an older tuner forward: rows kept, tables as new ones, and never without
being asked."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text, update

from tests.support.postgres_cluster import Cluster
from tuner.errors import EmptyDatabaseError, StorageError
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import open_database, reachable
from tuner.storage.database_clock import database_now
from tuner.storage.migrations import known_versions
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.upgrade import upgrade
from tuner.storage.url import parse_url
from tuner.study.open import open_study

OLD = Path(__file__).parent / "version-1"
STUDY = "demo-rmsnorm"


@pytest.fixture
def old_url(database_url: str, request: pytest.FixtureRequest) -> str:
    """A database that the last tuner of version 1 filled: three results, a trial handed back,
    epochs, a worker."""
    if database_url.startswith("sqlite"):
        with sqlite3.connect(database_url.removeprefix("sqlite:///")) as file:
            file.executescript((OLD / "sqlite.sql").read_text(encoding="utf-8"))
        file.close()
    else:
        cluster: Cluster = request.getfixturevalue("postgres")
        with cluster.connect(database_url.rpartition("/")[2]) as connection:
            connection.execute((OLD / "postgresql.sql").read_text(encoding="utf-8").encode())
    return database_url


def shape(engine: Engine) -> dict[str, Any]:
    """Columns, keys and indexes of our tables; the order of columns says nothing."""
    seen = inspect(engine)
    return {
        name: (
            {
                c["name"]: (str(c["type"]), c["nullable"], c["default"])
                for c in seen.get_columns(name)
            },
            seen.get_pk_constraint(name)["constrained_columns"],
            sorted((i["name"] or "", tuple(i["column_names"])) for i in seen.get_indexes(name)),
            sorted(tuple(u["column_names"]) for u in seen.get_unique_constraints(name)),
        )
        for name in seen.get_table_names()
        if name.startswith("tuner_")
    }


def rows(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table that is not Alembic's or the version's own."""
    with engine.connect() as connection:
        return {
            name: [
                dict(row)
                for row in connection.execute(
                    text(f"SELECT * FROM {name} ORDER BY 1, 2")
                ).mappings()
            ]
            for name in inspect(engine).get_table_names()
            if name not in ("tuner_schema", "alembic_version", "version_info")
        }


def test_an_upgraded_database_has_the_tables_of_a_fresh_one_and_its_own_rows(old_url: str) -> None:
    with reachable(parse_url(old_url)) as engine:
        before = rows(engine)
    assert len(before["tuner_epochs"]) == 12
    assert len(before["tuner_claims"]) == 4
    assert upgrade(parse_url(old_url)) == 1
    with reachable(parse_url(old_url)) as engine:
        after, upgraded = rows(engine), shape(engine)
        with engine.connect() as connection:
            ours = {
                "include_name": lambda name, kind, _parents: (
                    kind != "table" or name in schema.metadata.tables
                )
            }
            assert (
                compare_metadata(MigrationContext.configure(connection, opts=ours), schema.metadata)
                == []
            )
        schema.metadata.drop_all(engine)
        schema.metadata.create_all(engine)
        assert upgraded == shape(engine)
    kept = {
        name: [
            {key: value for key, value in row.items() if key in before[name][0]} for row in found
        ]
        for name, found in after.items()
        if name in before
    }
    assert kept == before
    assert {row["repeat"] for row in after["tuner_epochs"]} == {0}


def test_an_upgraded_study_is_read_and_worked_on(old_url: str) -> None:
    upgrade(parse_url(old_url))
    assert check_database(parse_url(old_url)).findings == ()
    database = open_database(parse_url(old_url))
    study = open_study(database, STUDY)
    assert study.policy() == SearchPolicy(), "as it was, though others are new"
    assert [row.epoch for row in study.epochs.of_trial(0)] == [1, 2, 3, 4]
    study.epochs.write(0, 1, [EpochRow(1, 0.5, 0.5, 1e-3, 1.0, repeat=1)])
    assert (study.ledger.counts().finished, study.ledger.counts().budget) == (3, 9)
    assert study.ledger.claim("ann") is not None
    database.close()


def test_upgrading_again_does_nothing(old_url: str) -> None:
    upgrade(parse_url(old_url))
    with reachable(parse_url(old_url)) as engine:
        before = (rows(engine), shape(engine))
    assert upgrade(parse_url(old_url)) == schema.SCHEMA_VERSION
    with reachable(parse_url(old_url)) as engine:
        assert (rows(engine), shape(engine)) == before


def test_nothing_upgrades_on_the_way(old_url: str) -> None:
    with reachable(parse_url(old_url)) as engine:
        before = (rows(engine), shape(engine))
    for create in (True, False):
        with pytest.raises(
            StorageError,
            match=r"version 1, this tuner works with 4: they are older.* tuner db upgrade",
        ):
            open_database(parse_url(old_url), create=create)
    (finding,) = check_database(parse_url(old_url)).findings
    assert "tuner db upgrade" in finding.what
    with reachable(parse_url(old_url)) as engine:
        assert (rows(engine), shape(engine)) == before


def test_a_failure_on_the_way_leaves_the_database_as_it_was(
    old_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reachable(parse_url(old_url)) as engine:
        before = (rows(engine), shape(engine))
    # What comes last fails: by then every table was changed.
    monkeypatch.setattr(
        "tuner.storage.upgrade._seal_versions",
        lambda connection: connection.execute(text("nonsense")),
    )
    with pytest.raises(StorageError, match="nonsense"):
        upgrade(parse_url(old_url))
    with reachable(parse_url(old_url)) as engine:
        assert (rows(engine), shape(engine)) == before
        with engine.connect() as connection:
            assert schema.version_of(connection) == 1


def test_no_upgrade_while_a_worker_is_at_work(old_url: str) -> None:
    with reachable(parse_url(old_url)) as engine, engine.begin() as connection:
        connection.execute(text("UPDATE tuner_workers SET stopped = :no"), {"no": False})
        connection.execute(update(schema.workers).values(seen_at=database_now()))
    with pytest.raises(StorageError, match=r"1 worker is at work \(host-1\): stop them first"):
        upgrade(parse_url(old_url))


def test_tables_of_a_newer_tuner_are_left_alone(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    with database.engine.begin() as connection:
        connection.execute(update(schema.schema).values(version=99))
    database.close()
    with pytest.raises(StorageError, match="newer; upgrade tuner on this machine"):
        upgrade(parse_url(database_url))


def test_an_empty_database_has_nothing_to_upgrade(postgres: Cluster, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no database"):
        upgrade(parse_url(f"sqlite:///{tmp_path}/none.db"))
    assert list(tmp_path.iterdir()) == []
    name = postgres.create_database()
    with pytest.raises(EmptyDatabaseError, match="tuner db init"):
        upgrade(parse_url(postgres.url(name)))
    postgres.empty_database(name)


def test_there_is_a_script_for_every_version() -> None:
    assert known_versions() == tuple(range(1, schema.SCHEMA_VERSION + 1))
