"""Databases that cannot be used: one clear line with the remedy, no traceback, no password."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.forked_cli import run_here as run
from tests.support.postgres_cluster import PASSWORD, Cluster
from tests.support.refusals import refused
from tuner.storage.database import open_database
from tuner.storage.url import parse_url

LAUNCH = ("launch", "--task", "demo", "--cpu", "--variant", "rmsnorm")


def test_a_password_in_a_url_is_warned_of_and_never_shown(tmp_path: Path) -> None:
    done = run("status", "--storage", "postgresql://ann:Zq7secret@127.0.0.1:1/x", folder=tmp_path)
    assert done.code == 1
    assert "refused" in done.error
    assert "TUNER_STORAGE" in done.err
    assert "PGPASSFILE" in done.err
    assert "Zq7secret" not in done.err
    quiet = run(
        "status",
        folder=tmp_path,
        environment={"TUNER_STORAGE": "postgresql://ann:Zq7secret@127.0.0.1:1/x"},
    )
    assert len(quiet.err.splitlines()) == 1
    assert "refused" in quiet.error
    assert "Zq7secret" not in quiet.err


def test_a_wrong_password_is_one_line_that_does_not_show_it(
    postgres: Cluster, tmp_path: Path
) -> None:
    url = postgres.url(postgres.create_database(), password="{wrong}@Zq7")
    says = ("password authentication failed", "TUNER_STORAGE", "PGPASSFILE")
    line = refused(*LAUNCH, folder=tmp_path, code=1, says=says, environment={"TUNER_STORAGE": url})
    assert "Zq7" not in line
    assert quote("Zq7") not in line


def test_a_server_without_that_database_is_one_line(postgres: Cluster, tmp_path: Path) -> None:
    says = ("nothing_here", "does not exist", "createdb")
    line = refused(
        *LAUNCH,
        folder=tmp_path,
        code=1,
        says=says,
        environment={"TUNER_STORAGE": postgres.url("nothing_here")},
    )
    assert PASSWORD not in line


@pytest.mark.parametrize(
    ("command", "share"),
    [
        ("launch", 0.0),
        ("best", 0.3),
        ("worker", 0.0),
        ("status", 0.0),
        ("status", 0.3),
        ("status", 0.6),
    ],
)
def test_a_damaged_database_is_one_line(command: str, share: float, copied: Path) -> None:
    """The pages from `share` of the file on are noise; the first 100 bytes, which name it an SQLite
    file, are kept."""
    path = copied / "storage" / "tuner.db"
    good = path.read_bytes()
    kept = max(100, int(len(good) * share))
    path.write_bytes(good[:kept] + bytes(7 * i % 251 for i in range(len(good) - kept)))
    arguments = {
        "launch": LAUNCH,
        "best": ("best", "--variant", "rmsnorm", "--task", "demo"),
        "status": ("status",),
        "worker": ("worker", "--study", "demo-rmsnorm", "--cpu"),
    }[command]
    done = run(*arguments, folder=copied)
    assert done.code == 1, done.err
    assert "database" in done.error
    assert "check" in done.error


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_a_database_that_was_named_and_is_not_there_is_an_error_that_names_near_ones(
    how: str, copied: Path
) -> None:
    url = "sqlite:///storage/tunner.db"
    named = ("--storage", url) if how == "flag" else ()
    environment = {"TUNER_STORAGE": None if how == "flag" else url}
    for arguments in (("status",), ("status", "--json")):
        done = run(*arguments, *named, folder=copied, environment=environment)
        assert done.code == 1, done.err
        for words in (
            "there is no database",
            "tunner.db",
            "did you mean 'tuner.db'",
            "tuner launch",
        ):
            assert words in done.error
        if "--json" in arguments:
            assert done.json()["error"]["exit_code"] == 1
    assert not (copied / "storage" / "tunner.db").exists()


def test_the_usual_database_before_the_first_launch_is_no_failure(tmp_path: Path) -> None:
    done = run("status", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "no studies yet" in done.out
    assert done.out.endswith("start one with: tuner launch --variant rmsnorm\n")
    assert run("status", "--json", folder=tmp_path).json()["studies"] == []
    (tmp_path / "a b.db").touch()
    done = run("status", "--storage", "sqlite:///a b.db", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("tuner launch --variant rmsnorm --storage 'sqlite:///a b.db'\n")


def test_a_study_that_was_named_and_is_not_there_is_an_error_also_where_there_are_none(
    tmp_path: Path,
) -> None:
    for prepare in (
        lambda: None,
        lambda: open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db")).close(),
    ):
        prepare()
        for arguments in (("status", "--study", "nope"), ("status", "--study", "nope", "--json")):
            done = run(*arguments, folder=tmp_path)
            assert done.code == 2, done.out
            assert done.error.startswith("unknown study 'nope'")


def test_a_secret_parameter_is_neither_shown_nor_proposed(
    postgres: Cluster, tmp_path: Path
) -> None:
    url = postgres.url(postgres.create_database())
    secret = f"{url}{'&' if '?' in url else '?'}sslpassword=Zq7secret&application_name=mine"
    for arguments, code in (
        (("db", "init"), 0),
        (("status", "--json"), 0),
        (("doctor",), None),
    ):
        for named, environment in ((("--storage", secret), {}), ((), {"TUNER_STORAGE": secret})):
            done = run(*arguments, *named, folder=tmp_path, environment=environment)
            assert code in (done.code, None), done.err
            assert "Zq7secret" not in done.out + done.err
            assert ("visible to everyone" in done.err) == bool(named)


def test_an_altered_table_is_one_line_and_the_check_names_what_it_lost(copied: Path) -> None:
    path = copied / "storage" / "tuner.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE tuner_workers DROP COLUMN note")
        done = run("status", folder=copied)
        assert done.code == 1
        assert (
            "no such column: tuner_workers.note; somebody altered its tables: 'tuner db check'"
            in done.error
        )
        checked = run("db", "check", folder=copied)
        assert checked.code == 1
        assert "tuner_workers has lost its column note: somebody altered it" in checked.out
