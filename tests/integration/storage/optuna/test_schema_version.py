"""The version of Optuna's tables is asked in plain SQL, and Optuna has the last word where it is
not the one wanted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from tests.support.databases import SQLITE_ALONE
from tuner.errors import StorageError
from tuner.storage.database import Database, open_database
from tuner.storage.optuna.private import _SCRIPTS, current_version, wanted_version
from tuner.storage.url import parse_url


def set_version(engine: Engine, version: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE alembic_version SET version_num = :version"), {"version": version}
        )


def test_the_version_wanted_is_the_one_that_alembic_finds() -> None:
    assert wanted_version() == ScriptDirectory(_SCRIPTS.parent).get_current_head()


def test_the_version_there_is_the_one_that_optuna_finds(database: Database) -> None:
    theirs = optuna.storages.RDBStorage(database.address.full())
    assert current_version(database.engine) == theirs.get_current_version()
    theirs.engine.dispose()
    assert current_version(database.engine) == wanted_version()


@SQLITE_ALONE
def test_tables_of_another_optuna_are_refused(database: Database) -> None:
    for version in ("v3.0.0.d", "v99.0.0.a"):
        set_version(database.engine, version)
        for create in (True, False):
            with pytest.raises(StorageError, match="optuna"):
                open_database(database.address, create=create)


@SQLITE_ALONE
def test_a_version_that_was_never_recorded_is_recorded_by_optuna(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("DELETE FROM alembic_version"))
    open_database(database.address, create=False).close()
    assert current_version(database.engine) == wanted_version()


def test_a_new_database_gets_the_table_that_alembic_makes(
    database_url: str, database: Database
) -> None:
    ours = described(database.engine)
    with database.engine.begin() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
    opened = open_database(parse_url(database_url))
    assert described(opened.engine) == ours
    opened.close()


@SQLITE_ALONE
def test_tables_from_before_alembic_are_left_to_optuna(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
        connection.execute(text("UPDATE version_info SET schema_version = 0"))
        connection.execute(text("UPDATE version_info SET library_version = '0.8.0'"))
    with pytest.raises(StorageError, match="optuna"):
        open_database(database.address)


def described(engine: Engine) -> object:
    """The table of versions, its key and what it holds."""
    there = inspect(engine)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM alembic_version")).all()
    columns = [
        (each["name"], str(each["type"]), each["nullable"])
        for each in there.get_columns("alembic_version")
    ]
    return columns, there.get_pk_constraint("alembic_version"), rows


@SQLITE_ALONE
def test_opening_what_is_there_or_what_is_new_imports_no_alembic(
    database: Database, tmp_path: Path
) -> None:
    script = (
        "import sys; from tuner.storage.database import open_database; "
        "from tuner.storage.url import parse_url; "
        "open_database(parse_url(sys.argv[1]), create=False).close(); "
        "open_database(parse_url(sys.argv[1])).close(); "
        "open_database(parse_url(sys.argv[2])).close(); "
        "print('alembic' in sys.modules)"
    )
    url = database.address.full()
    done = subprocess.run(
        [sys.executable, "-c", script, url, f"sqlite:///{tmp_path}/new.db"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
