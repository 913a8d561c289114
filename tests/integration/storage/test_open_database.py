"""Opening a database: created once, opened by anyone, refused in one line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlalchemy import func, inspect, select, update

from tests.support.concurrency import at_once
from tests.support.databases import SQLITE_ALONE
from tests.support.postgres_cluster import PASSWORD, Cluster
from tuner.cli.main import main
from tuner.errors import EmptyDatabaseError, StorageError
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import Database, open_database
from tuner.storage.dialects import database_now
from tuner.storage.retry import in_one_sentence
from tuner.storage.url import parse_url


def open_and_look(url: str) -> list[str]:
    database = open_database(parse_url(url))
    try:
        return sorted(inspect(database.engine).get_table_names())
    finally:
        database.close()


def test_an_empty_database_is_created_and_can_be_opened_again(database_url: str) -> None:
    address = parse_url(database_url)
    open_database(address).close()
    again = open_database(address, create=False)
    names = set(inspect(again.engine).get_table_names())
    again.close()
    assert {
        "trials",
        "tuner_work",
        "tuner_epochs",
        "tuner_schema",
        "tuner_studies",
        "tuner_workers",
    } <= names


def test_processes_that_open_an_empty_database_at_once_all_live(database_url: str) -> None:
    answers = at_once(open_and_look, database_url, processes=6)
    assert len(answers) == 6
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert all(answer == answers[0] for answer in answers)
    database = open_database(parse_url(database_url), create=False)
    with database.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(schema.schema)).scalar_one() == 1
    database.close()


def test_an_empty_database_is_not_created_by_looking(postgres: Cluster, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no database"):
        open_database(parse_url(f"sqlite:///{tmp_path}/none.db"), create=False)
    assert list(tmp_path.iterdir()) == []
    name = postgres.create_database()
    with pytest.raises(EmptyDatabaseError, match="no studies yet"):
        open_database(parse_url(postgres.url(name)), create=False)
    with postgres.connect(name) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)


@SQLITE_ALONE
def test_tables_of_another_version_are_refused(
    database: Database,
    capsys: pytest.CaptureFixture[str],
    database_url: str,
) -> None:
    with database.engine.begin() as connection:
        connection.execute(update(schema.schema).values(version=schema.SCHEMA_VERSION - 1))
    other = "was made by another version of tuner; export its studies with the version that made it"
    for create in (True, False):
        with pytest.raises(StorageError, match=other):
            open_database(database.address, create=create)
    (finding,) = check_database(database.address).findings
    assert other in finding.what
    with pytest.raises(SystemExit) as ended:
        main(["status", "--storage", database_url])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert other in said.err.splitlines()[-1]  # a password in a URL is warned of first


def test_the_clock_is_the_databases_own_in_seconds_since_1970(database: Database) -> None:
    """The cluster runs in another time zone than these tests: no offset may show."""
    import time

    before = time.time()
    with database.engine.connect() as connection:
        first, second = (connection.execute(select(database_now())).scalar_one() for _ in range(2))
    assert before - 0.1 <= first <= second <= time.time() + 0.1


def test_a_password_with_every_awkward_character_works(postgres: Cluster) -> None:
    name = postgres.create_database()
    for url in (postgres.escaped_url(name), postgres.url(name)):
        database = open_database(parse_url(url))
        said = f"{database!r} {database.engine!r} {database.engine.url!r} {database.optuna.url}"
        assert PASSWORD not in said
        database.close()


def refusal(url: str) -> str:
    with pytest.raises(StorageError) as refused:
        open_database(parse_url(url))
    message = str(refused.value)
    assert "\n" not in message
    assert refused.value.__cause__ is None
    return message


def test_a_wrong_password_is_refused_without_showing_it(postgres: Cluster) -> None:
    message = refusal(postgres.url("postgres", password="Zq7{wrong}@"))
    assert "password authentication failed" in message
    assert "TUNER_STORAGE" in message
    assert "PGPASSFILE" in message
    assert "Zq7" not in message


def test_no_password_at_all_is_refused_by_the_cluster(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    assert "no password supplied" in refusal(postgres.url("postgres", password=None))


def test_a_missing_database_is_named_with_the_remedy(postgres: Cluster) -> None:
    message = refusal(postgres.url("not_there"))
    assert 'database "not_there" does not exist' in message
    assert "createdb" in message


def test_a_server_that_is_not_there_is_named(postgres: Cluster) -> None:
    url = postgres.url("postgres").replace(str(postgres.port), "1")
    message = refusal(url)
    assert "refused" in message
    assert "host and port" in message


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database, " * 100, encoding="utf-8")
    assert "not an SQLite database" in refusal(f"sqlite:///{path}")
    assert path.read_text(encoding="utf-8") == "no database, " * 100


def test_a_folder_and_a_place_beneath_a_file_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(f"sqlite:///{tmp_path}")
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "cannot create the folder" in refusal(f"sqlite:///{tmp_path}/file/deeper/a.db")


def test_a_folder_that_takes_no_file_is_named_at_once() -> None:
    assert "cannot write beside the database /proc/a.db" in refusal("sqlite:////proc/a.db")


def test_a_new_sqlite_file_makes_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deeper" / "{a} b.db"
    open_and_look(f"sqlite:///{path}")
    assert stat.S_ISREG(path.stat().st_mode)
    assert not (tmp_path / "new" / "deeper" / "{{a}} b.db").exists()


def test_a_file_that_is_taken_away_while_it_is_in_use_is_not_made_anew(tmp_path: Path) -> None:
    """An empty one in its place would be in the way of a backup, and be taken for it."""
    address = parse_url(f"sqlite:///{tmp_path}/tuner.db")
    database = open_database(address)
    for file in tmp_path.glob("tuner.db*"):
        file.unlink()
    with pytest.raises(StorageError) as refused, in_one_sentence():
        database_now(database.engine)
    said = str(refused.value)
    assert f"its file was taken away while it was in use: {address.sqlite_path}" in said
    assert "put it, or a backup of it, back there" in said
    assert not address.sqlite_path.exists()
    database.close()
