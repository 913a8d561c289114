"""The roles of storage/postgres/ on a real server: each can do its work, and nothing beyond it."""

from __future__ import annotations

import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import optuna_dashboard
import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from tests.support.postgres_cluster import PASSWORD, Cluster
from tests.support.postgres_roles import SQL, ThreeRoles, three_roles
from tests.support.recorded_studies import record_study
from tuner.cli.main import main
from tuner.errors import StorageError
from tuner.report.dashboard.server import make_dashboard
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import VERSION_TABLES, initialise, open_database
from tuner.storage.url import parse_url

STUDY = "demo-rmsnorm"


@pytest.fixture(scope="module")
def roles(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeRoles]:
    """A database that the owner made and in which the worker recorded a study."""
    made = three_roles(postgres, tmp_path_factory.mktemp("secrets"))
    record_study(made.url("worker"), variant="rmsnorm", trials=6)
    yield made
    postgres.empty_database(made.database)


def connect(roles: ThreeRoles, role: str) -> psycopg.Connection[tuple[object, ...]]:
    connection = psycopg.connect(
        host="127.0.0.1",
        port=roles.cluster.port,
        user=f"tuner_{role}",
        password=roles.password(role),
        dbname=roles.database,
        autocommit=True,
    )
    connection.execute(
        "SET default_transaction_read_only = off"
    )  # everybody may: it protects from accidents only
    return connection


def tables(roles: ThreeRoles) -> list[str]:
    with roles.cluster.connect(roles.database) as connection:
        found = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        )
        names = [name for (name,) in found]
    assert {"trials", "alembic_version", *schema.metadata.tables} <= set(names)
    return names


def refused(connection: psycopg.Connection[tuple[object, ...]], statement: str, table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY "
            "ordinal_position",
            [table],
        )
        column = next(str(row[0]) for row in cursor)
        composed = sql.SQL(statement).format(
            table=sql.Identifier(table), column=sql.Identifier(column)
        )
        with pytest.raises(errors.InsufficientPrivilege):
            cursor.execute(composed)


WRITING = (
    "INSERT INTO {table} DEFAULT VALUES",
    "UPDATE {table} SET {column} = {column}",
    "DELETE FROM {table}",
    "SELECT * FROM {table} FOR UPDATE",
)
CHANGING = (
    "TRUNCATE {table} CASCADE",
    "DROP TABLE {table} CASCADE",
    "ALTER TABLE {table} ADD COLUMN forged integer",
    "ALTER TABLE {table} RENAME COLUMN {column} TO forged",
    "CREATE INDEX forged ON {table} ({column})",
)


def contents(roles: ThreeRoles) -> dict[str, int]:
    with roles.cluster.connect(roles.database) as connection:
        checksum = "SELECT coalesce(sum(hashtext(t::text)), 0) FROM {} t"
        found = {
            name: connection.execute(sql.SQL(checksum).format(sql.Identifier(name))).fetchone()
            for name in tables(roles)
        }
    return {name: int(row[0]) for name, row in found.items() if row is not None}


def test_the_reader_can_change_nothing_in_any_table(roles: ThreeRoles) -> None:
    before = contents(roles)
    with connect(roles, "reader") as connection:
        for table in tables(roles):
            for statement in WRITING + CHANGING:
                refused(connection, statement, table)
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE forged (x integer)")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SELECT nextval('trials_trial_id_seq')")
    assert contents(roles) == before


def test_the_worker_can_change_rows_and_no_table(roles: ThreeRoles) -> None:
    before = contents(roles)
    with connect(roles, "worker") as connection:
        for table in tables(roles):
            for statement in CHANGING:
                refused(connection, statement, table)
        for table in VERSION_TABLES:
            for statement in WRITING:
                refused(connection, statement, table)
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE forged (x integer)")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("CREATE ROLE forged")
    assert contents(roles) == before


def test_no_role_is_more_than_it_needs_to_be(roles: ThreeRoles) -> None:
    with roles.cluster.connect(roles.database) as connection:
        found = connection.execute(
            "SELECT rolname, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, "
            "rolbypassrls "
            "FROM pg_roles WHERE rolname LIKE 'tuner\\_%' ORDER BY 1"
        ).fetchall()
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        stored = connection.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname LIKE 'tuner\\_%'"
        ).fetchall()
    assert found == [
        (f"tuner_{role}", True, *[False] * 5) for role in ("owner", "reader", "worker")
    ]
    assert owners == [("tuner_owner",)]
    assert all(str(password).startswith("SCRAM-SHA-256$") for (password,) in stored)


def test_neither_worker_nor_reader_makes_the_tables(roles: ThreeRoles) -> None:
    name = roles.cluster.create_database()
    roles.cluster.psql(name, SQL / "roles.sql")
    for role in ("worker", "reader"):
        address = parse_url(
            roles.cluster.url(name, user=f"tuner_{role}", password=roles.password(role))
        )
        with pytest.raises(
            StorageError, match=r"(permission denied|read-only).*; .* 'tuner db init'"
        ):
            open_database(address)
    roles.cluster.empty_database(name)


def test_initialising_again_as_the_owner_is_nothing_and_the_superuser_loses_its_password(
    roles: ThreeRoles,
) -> None:
    assert initialise(parse_url(roles.url("owner"))) is False
    with roles.cluster.connect() as connection:
        connection.execute(
            sql.SQL("CREATE ROLE postgres SUPERUSER LOGIN PASSWORD {}").format(
                sql.Literal(PASSWORD)
            )
        )
        roles.cluster.psql(roles.database, SQL / "superuser.sql")
        assert connection.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'"
        ).fetchone() == (None,)
        connection.execute("DROP ROLE postgres")


def test_status_and_best_work_as_the_reader(
    roles: ThreeRoles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_STORAGE", roles.url("reader"))
    best = ["best", "--variant", "rmsnorm", "--task", "demo", "--pick", "knee"]
    for arguments, shows in ((["status"], "Studies"), (["status", "--json"], STUDY), (best, STUDY)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        assert shows in said.out
    assert check_database(parse_url(roles.url("reader"))).findings == ()


def ask(url: str, method: str = "GET", body: object = None) -> tuple[int, bytes]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        url, method=method, data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


def test_the_reader_sees_every_view_of_the_dashboard_and_a_forged_post_is_refused(
    roles: ThreeRoles,
) -> None:
    before = contents(roles)
    server = make_dashboard(parse_url(roles.url("reader")), host="127.0.0.1", port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        code, body = ask(f"{url}/api/studies")
        study = next(
            s["study_id"] for s in json.loads(body)["study_summaries"] if s["study_name"] == STUDY
        )
        code, body = ask(f"{url}/api/studies/{study}")
        assert code == 200
        detail = json.loads(body)
        assert len(detail["trials"]) == 6
        assert detail["best_trials"]
        assert "rmsnorm on demo" in detail["note"]["body"]
        views = ("", "/analytics", "/trials", "/graph", "/note")
        assert {ask(f"{url}/dashboard/studies/{study}{view}")[0] for view in views} == {200}
        for more in ("meta", f"studies/{study}/param_importances?evaluator=ped_anova"):
            assert ask(f"{url}/api/{more}")[0] == 200, more
        for path, forged in (
            ("studies", {"study_name": "forged"}),
            ("trials/1/tell", {"state": "Fail"}),
        ):
            assert ask(f"{url}/api/{path}", "POST", forged)[0] == 405
    finally:
        server.shutdown()
        server.server_close()
    assert contents(roles) == before


def test_without_our_guard_the_role_refuses_the_forged_post_all_the_same(roles: ThreeRoles) -> None:
    before = contents(roles)
    database = open_database(parse_url(roles.url("reader")), create=False)
    application = optuna_dashboard.wsgi(database.optuna)
    answers: list[str] = []
    body = json.dumps({"study_name": "forged", "directions": ["minimize"]}).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/api/studies",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
    }
    list(application(environ, lambda status, *_: answers.append(status)))
    database.close()
    assert answers[0].startswith("500")
    assert contents(roles) == before


def test_a_role_without_a_password_cannot_log_in(
    roles: ThreeRoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    engine = create_engine(parse_url(roles.url("reader", with_password=False)).url)
    with pytest.raises(OperationalError, match="no password supplied"):
        engine.connect()
    engine.dispose()
