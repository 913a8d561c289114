"""Databases and studies that people get wrong: one clear line with the remedy, no traceback,
nothing written."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.forked_cli import run
from tests.support.postgres_cluster import PASSWORD, Cluster
from tests.support.recorded_studies import RecordedDatabase
from tests.support.refusals import contents, refused
from tests.support.small_study import definition
from tuner.cli import main
from tuner.errors import UsageError
from tuner.launch.plan import check_study_name
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume, open_study

DEMO = ("launch", "--task", "demo", "--cpu")
LAUNCH = (*DEMO, "--variant", "rmsnorm")

DATABASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "nobody listens": (
        "postgresql://ann@127.0.0.1:1/x",
        ("ann@127.0.0.1:1/x", "refused", "check that the server runs"),
    ),
    "no such host": (
        "postgresql://ann@nowhere.invalid/x",
        ("nowhere.invalid", "check that the server runs"),
    ),
    "a driver that is not installed": (
        "postgresql+nodriver://ann@127.0.0.1/x",
        ("nodriver", "postgresql://USER@HOST"),
    ),
    "no name of a database": (
        "mysql://root@host/",
        ("names no database", "expected mysql://root@host/DATABASE"),
    ),
    "two users": (
        "postgresql://ann@127.0.0.1:1/x?user=eve",
        ("names 2 users: ann, eve", "USER@HOST"),
    ),
    "the user as an option": (
        "postgresql://127.0.0.1:1/x?user=ann",
        ("ann@127.0.0.1:1/x", "refused"),
    ),
    "an option that there is none of": (
        "postgresql://ann@127.0.0.1/x?foo=1",
        ("foo", "correct the URL"),
    ),
    "a folder": ("sqlite:///a_folder", ("a_folder", "is a folder", "tuner.db")),
    "beneath a regular file": (
        "sqlite:///a_file/deep/tuner.db",
        ("a_file/deep", "writable", "--storage"),
    ),
    "not an SQLite file": ("sqlite:///a_file", ("a_file", "not an SQLite database", "--storage")),
}


@pytest.mark.parametrize("mistake", DATABASES)
@pytest.mark.parametrize("command", ["launch", "best"])
def test_a_database_that_cannot_be_used_is_one_line(
    mistake: str, command: str, tmp_path: Path
) -> None:
    url, says = DATABASES[mistake]
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "a_file").write_text(
        "something else, longer than the first sixteen bytes", encoding="utf-8"
    )
    if command == "best" and mistake == "beneath a regular file":
        says = ("a_file/deep", "there is no database", "tuner launch")
    arguments = (
        LAUNCH if command == "launch" else ("best", "--task", "demo", "--variant", "rmsnorm")
    )
    code = 2 if mistake in ("no name of a database", "two users") else 1
    refused(*arguments, "--storage", url, folder=tmp_path, code=code, says=says)


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


@pytest.fixture
def copied(recorded_database: RecordedDatabase, tmp_path: Path) -> Path:
    """A folder with the recorded studies where the default database is."""
    folder = tmp_path / "work"
    (folder / "storage").mkdir(parents=True)
    with (
        sqlite3.connect(recorded_database.path) as source,
        sqlite3.connect(folder / "storage" / "tuner.db") as target,
    ):
        source.backup(target)
    return folder


def dump(folder: Path) -> str:
    with sqlite3.connect(f"file:{folder}/storage/tuner.db?mode=ro", uri=True) as connection:
        return "\n".join(connection.iterdump())


EXISTING: dict[str, tuple[Sequence[str], int, tuple[str, ...]]] = {
    "worker": (
        ("worker", "--study", "demo-rmsnrm", "--cpu"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "status": (
        ("status", "--study", "demo-rmsnrm"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "best": (
        ("best", "--variant", "rmsnorm", "--study", "demo-rmsnrm"),
        2,
        ("'demo-rmsnrm'", "did you mean 'demo-rmsnorm'"),
    ),
    "bounds nobody meets": (
        (
            "best",
            "--variant",
            "rmsnorm",
            "--task",
            "demo",
            "--pick",
            "knee",
            "--max-time",
            "0.001",
            "--max-mql",
            "0.5",
        ),
        1,
        ("'demo-rmsnorm'", "wall_clock_s <= 0.001 and test_mql <= 0.5", "nearest is trial"),
    ),
    "another definition": (
        (*LAUNCH, "--max-epochs", "3"),
        2,
        ("'demo-rmsnorm'", "training.max_epochs: 200 there, 3 asked", "--study NAME"),
    ),
    "another device": (
        (*LAUNCH, "--trials", "100"),
        2,
        ("'demo-rmsnorm'", "Example CPU", "--study NAME"),
    ),
    "a wrong study file": ((*DEMO, "--variant", "rmsnorm,none.toml"), 2, ("none.toml",)),
    "a wrong task": (
        ("launch", "--cpu", "--variant", "simple", "--task", "none.toml"),
        2,
        ("none.toml",),
    ),
}


@pytest.mark.parametrize("command", ["status", "plot"])
def test_an_empty_name_is_no_study(command: str, copied: Path) -> None:
    arguments = {"status": ("status",), "plot": ("plot", "front", "--output", "front.html")}[
        command
    ]
    done = run(*arguments, "--study", "", folder=copied)
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("unknown study ''")


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("nohost.invalid", "--host takes"), ("192.0.2.1", "--host takes"), ("127.0.0.1", "--port")],
)
def test_an_address_that_cannot_be_listened_on_is_one_line(
    address: str, remedy: str, copied: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("dashboard", "--host", address, "--port", port, folder=copied)
    assert (done.code, done.out) == (1, "")
    assert f"cannot listen on {address}:{port}" in done.error
    assert remedy in done.error


def test_a_core_named_twice_is_one_core(copied: Path) -> None:
    core = str(min(os.sched_getaffinity(0)))
    done = run(
        "worker", "--study", "demo-rmsnorm", "--cpu", "--cores", f"{core},{core}", folder=copied
    )
    assert done.code == 2  # it would wait for itself for ever
    assert "1 core" in done.err
    assert "do not compare" in done.err


@pytest.mark.parametrize("mistake", EXISTING)
def test_a_mistake_leaves_an_existing_database_as_it_was(mistake: str, copied: Path) -> None:
    arguments, code, says = EXISTING[mistake]
    before, files = dump(copied), set(contents(copied))
    done = run(*arguments, folder=copied)
    assert done.code == code, done.err
    assert done.out == ""
    for words in says:
        assert words in done.error, done.error
    assert dump(copied) == before
    # The lock beside an SQLite file stays, as that of any launch does: to delete it would be a
    # race.
    assert set(contents(copied)) - files <= {"storage/tuner.db.lock"}


def test_a_study_of_another_version_is_one_line(copied: Path) -> None:
    path = copied / "storage" / "tuner.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE tuner_studies SET definition = json_remove(definition, '$.data_hash')"
        )
    connection.close()
    for arguments in (LAUNCH, ("best", "--variant", "rmsnorm", "--task", "demo"), ("status",)):
        done = run(*arguments, folder=copied)
        assert done.code == 1, done.err
        for words in ("'demo-rmsnorm'", "another version of tuner", "--study NAME"):
            assert words in done.error, done.error


def test_nothing_finished_yet_is_one_line(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db"))
    create_or_resume(database, "demo-rmsnorm", definition(), trials=10)
    database.close()
    done = run("best", "--variant", "rmsnorm", "--task", "demo", folder=tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert "'demo-rmsnorm' has no finished trial" in done.error
    assert "try again later" in done.error


@pytest.mark.parametrize(
    "arguments",
    [("worker", "--study", "mine", "--cpu"), ("best", "--variant", "rmsnorm", "--study", "mine")],
)
def test_no_database_and_one_without_studies_say_how_to_start(
    arguments: Sequence[str], tmp_path: Path
) -> None:
    refused(
        *arguments,
        folder=tmp_path,
        code=1,
        says=("there is no database", "tuner launch", "--storage"),
    )
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "tuner.db").touch()
    done = run(*arguments, folder=tmp_path)
    assert done.code == 1
    assert "no studies yet" in done.error
    assert "tuner launch" in done.error
    open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db")).close()
    done = run(*arguments, folder=tmp_path)
    assert done.code == 2
    assert "unknown study 'mine'" in done.error
    assert "tuner launch" in done.error


@pytest.mark.parametrize(
    ("command", "share"),
    [
        *itertools.product(("launch", "best", "worker"), (0.0, 0.3)),
        *(("status", n / 40) for n in range(0, 27, 3)),
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


# -- which database, and which study of it ---------------------------------------------------------


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_a_database_that_was_named_and_is_not_there_is_an_error_that_names_near_ones(
    how: str, copied: Path
) -> None:
    url = "sqlite:///storage/tunner.db"
    named = ("--storage", url) if how == "flag" else ()
    environment = {"TUNER_STORAGE": None if how == "flag" else url}
    for arguments in (("status",), ("status", "--json"), ("status", "--study", "demo-rmsnorm")):
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


# -- secrets ---------------------------------------------------------------------------------------


def test_a_secret_parameter_is_neither_shown_nor_proposed(
    postgres: Cluster, tmp_path: Path
) -> None:
    url = postgres.url(postgres.create_database())
    secret = f"{url}{'&' if '?' in url else '?'}sslpassword=Zq7secret&application_name=mine"
    for arguments, code in (
        (("status",), 0),
        (("status", "--json"), 0),
        (("db", "init"), 0),
        (("doctor",), None),
    ):
        for named, environment in ((("--storage", secret), {}), ((), {"TUNER_STORAGE": secret})):
            done = run(*arguments, *named, folder=tmp_path, environment=environment)
            assert code in (done.code, None), done.err
            assert "Zq7secret" not in done.out + done.err
            assert ("visible to everyone" in done.err) == bool(named)


READERS: dict[str, tuple[str, ...]] = {
    "status": ("status", "--json"),
    "best": ("best", "--variant", "rmsnorm", "--task", "demo", "--pick", "knee"),
    "compare": ("compare", "rmsnorm", "original", "--task", "demo"),
    "check": ("db", "check"),
}


@pytest.mark.parametrize("command", READERS)
def test_a_file_that_may_only_be_read_is_read(
    command: str, copied: Path, read_only: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    path = copied / "storage" / "tuner.db"
    read_only(path)
    with pytest.raises(SystemExit) as ended:
        main([*READERS[command], "--storage", f"sqlite:///{path}"])
    assert ended.value.code == 0, capfd.readouterr().err


def test_what_others_wrote_last_is_read_too(
    copied: Path, read_only: Callable[[Path], None]
) -> None:
    """It may be in the writers' log only, which lies beside the file."""
    path = copied / "storage" / "tuner.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE tuner_studies SET budget = 77")
        read_only(path)
        database = open_database(parse_url(f"sqlite:///{path}"), create=False)
        assert open_study(database, "demo-rmsnorm").ledger.counts().budget == 77
        database.close()


def test_a_launch_on_a_file_that_may_only_be_read_says_so(
    copied: Path, read_only: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    path = copied / "storage" / "tuner.db"
    read_only(path)
    with pytest.raises(SystemExit) as ended:
        main(
            ["study", "extend", "demo-rmsnorm", "--trials", "99", "--storage", f"sqlite:///{path}"]
        )
    assert ended.value.code == 1
    assert (
        "this user may only read it: name a database that can be written" in capfd.readouterr().err
    )


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file and its folder one that this process may only read, also where it is root's, who
    may all."""

    def forbid(path: Path) -> None:
        there = os.access
        below = path.parent
        monkeypatch.setattr(
            os,
            "access",
            lambda asked, mode, **more: (
                there(asked, mode, **more)
                and not (mode & os.W_OK and below in (asked, Path(asked).parent))
            ),
        )

    return forbid


def test_an_altered_table_is_one_line_and_the_check_says_how_to_have_it_again(copied: Path) -> None:
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
        (remedy,) = [
            line.partition("or add it: ")[2]
            for line in checked.out.splitlines()
            if "add it" in line
        ]
        connection.execute(remedy)
        connection.commit()
    assert run("status", folder=copied).code == 0
    assert run("db", "check", folder=copied).code == 0


def test_a_name_that_a_task_makes_too_long_is_one_line(tmp_path: Path) -> None:
    refused(
        *LAUNCH,
        "--study",
        "x" * 600,
        folder=tmp_path,
        code=2,
        says=("1 to 200 printable characters",),
    )
    with pytest.raises(
        UsageError, match=r"--task and --variant: .*; name it yourself: --study NAME"
    ):
        check_study_name("x" * 600, flag="--task and --variant")


@pytest.mark.parametrize("columns", ["0", "abc", "-5", "9" * 30, "\N{SUPERSCRIPT TWO}"])
def test_an_odd_number_of_columns_hinders_nothing(columns: str, copied: Path) -> None:
    for arguments in (("status",), ("--help",)):
        done = run(*arguments, folder=copied, environment={"COLUMNS": columns, "LINES": columns})
        assert (done.code, done.err) == (0, "")
