"""Opening the database: one engine that Optuna's storage and our tables share."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import filelock
import optuna
from optuna.storages import RDBStorage
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tuner.errors import EmptyDatabaseError, StorageError
from tuner.storage import schema
from tuner.storage.dialects import CONNECT_TIMEOUT_S
from tuner.storage.migrations import baseline
from tuner.storage.optuna.private import versions_in_plain_sql
from tuner.storage.optuna.trials import TrialStorage
from tuner.storage.retry import persistently, remedy_where_refused
from tuner.storage.sqlite import (
    SQLITE_TIMEOUT_S,
    begin_on_sqlite,
    prepare_sqlite_file,
    sqlite_connector,
)
from tuner.storage.url import DatabaseUrl, require_name

# Why a database cannot be opened, in one line for a person.


@contextmanager
def in_one_line(address: DatabaseUrl) -> Iterator[None]:
    """Raises StorageError where the database at `address` cannot be opened meanwhile."""
    try:
        yield
    except (SQLAlchemyError, ImportError, RuntimeError, TypeError, ValueError) as error:
        if (said := _what_failed(address, error)) is None:
            raise
        raise StorageError(f"cannot open the database {address}: {said}") from None


def _what_failed(address: DatabaseUrl, error: Exception) -> str | None:
    """None of a fault of our own."""
    if isinstance(error, DBAPIError):
        return _sentence(address, error)
    if isinstance(error, ModuleNotFoundError):
        return f"its driver is not installed; run: pip install {error.name}"
    if isinstance(error, UnicodeDecodeError):  # what SQLite says of a damaged file quotes it
        return "it is damaged; check that the file is an SQLite database, or restore a backup"
    if isinstance(error, TypeError | ValueError):  # options of the URL go to a driver's function
        checked = "check the options after the '?'"
        return f"{_first_line(error)}; {checked}" if address.url.query else None
    if isinstance(error, NoSuchModuleError):
        return "there is no such driver; name none, as in postgresql://USER@HOST/DATABASE"
    return _cause(address, error)


def _sentence(address: DatabaseUrl, error: DBAPIError) -> str:
    """One line for a person: what failed, where, and what to check. Never the password."""
    cause = _cause(address, error.orig or error)
    if "invalid connection option" in cause or "invalid port number" in cause:
        remedy = "correct the URL"
    elif (refused := remedy_where_refused(cause)) is not None:
        remedy = refused
    elif "too many c" in cause or "connection slots" in cause:
        remedy = (
            "let it serve more (max_connections: one for each worker, two for each launch; "
            "docs/several-machines.md), or stop some workers"
        )
    elif "password" in cause or "authentication" in cause.lower():
        remedy = "check the user and the password (TUNER_STORAGE, or a PGPASSFILE)"
    elif "does not exist" in cause:
        remedy = "create the database first (createdb), or correct the name"
    elif address.is_sqlite:
        remedy = "check that the file is an SQLite database in a writable folder with free space"
    else:
        remedy = "check that the server runs and that host and port are right"
    return f"{cause}; {remedy}"


def _cause(address: DatabaseUrl, error: BaseException) -> str:
    return address.masked(_first_line(error))


def _first_line(error: BaseException) -> str:
    said = getattr(getattr(error, "diag", None), "message_primary", None)
    if said:  # PostgreSQL's own sentence, without the statement and a pointer into it
        return str(said)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # libpq prefixes each attempt with the address; the last such line names the cause.
    causes = [line for line in lines if "FATAL" in line or "refused" in line or "translate" in line]
    return (causes or lines or [type(error).__name__])[-1].rstrip(".")


_log = logging.getLogger(__name__)

VERSION_TABLES = ("tuner_schema", "version_info", "alembic_version")
"""What says which version the tables have: ours, and Optuna's two."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open database: its address, Optuna's storage on it, and the engine that both use."""

    address: DatabaseUrl
    optuna: RDBStorage

    @property
    def engine(self) -> Engine:
        return self.optuna.engine

    def close(self) -> None:
        self.optuna.remove_session()
        self.engine.dispose()


def open_database(address: DatabaseUrl, *, create: bool = True, retry_s: float = 0.0) -> Database:
    """Open, and with `create` initialise, the database at `address`.

    Any number of processes may do this at once on an empty database: creation happens under a lock.
    With `retry_s`, a server that is down is waited for, for as long as that: for who knows that
    it was there.

    Raises:
        StorageError: it cannot be reached, opened or written, or another version of tuner made it.
        EmptyDatabaseError: with `create=False`, when it holds no studies yet.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    require_name(address, os.environ)
    if address.is_sqlite:
        prepare_sqlite_file(address.sqlite_path, create=create)
    with in_one_line(address):
        if create:
            with initialisation_lock(address):
                return _open(address, create=True)
        return persistently(lambda: _open(address, create=False), "a connection", retry_s=retry_s)


def _open(address: DatabaseUrl, *, create: bool) -> Database:
    if not create:
        _require_tables(address)
    with versions_in_plain_sql():
        storage = TrialStorage(
            # Optuna runs the URL through str.format: braces in a file or database name must survive
            # that.
            address.url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}"),
            engine_kwargs=_engine_options(address),
            skip_table_creation=not create,
        )
    if address.is_sqlite:
        event.listen(storage.engine, "begin", begin_on_sqlite)
    elif at_connect := address.served.at_connect(address.url.get_driver_name()):
        event.listen(storage.engine, "connect", functools.partial(_begin_with, at_connect))
        storage.engine.dispose()  # the connections that Optuna has opened meanwhile
    with storage.engine.begin() as connection:
        found = schema.version_of(connection)
        if found is None and create:
            baseline(connection)
        elif problem := schema.mismatch(found):
            raise StorageError(f"{address} {problem}")
    return Database(address, storage)


def initialise(address: DatabaseUrl) -> bool:
    """Create all tables. False when they were there already.

    Raises:
        StorageError: the database cannot be reached or written, or holds tables of another version.
    """
    there = _is_initialised(address)
    open_database(address).close()
    with reachable(address) as engine, engine.begin() as connection:
        _seal_versions(connection)
    return not there


def _is_initialised(address: DatabaseUrl) -> bool:
    if address.is_sqlite and not address.sqlite_path.exists():
        return False
    with reachable(address) as engine, engine.connect() as connection:
        return schema.version_of(connection) is not None


def _seal_versions(connection: Connection) -> None:
    """Let nobody but the owner change what says which version the tables have; roles that may write
    get the rest.
    """
    if connection.dialect.name != "postgresql":
        return
    writers = text(
        "SELECT DISTINCT table_name, grantee FROM information_schema.role_table_grants "
        "WHERE table_schema = current_schema() AND table_name = ANY(:tables) AND grantor = "
        "current_user "
        "AND grantee <> current_user AND privilege_type <> 'SELECT'"
    )
    quote = connection.dialect.identifier_preparer.quote
    for table, grantee in connection.execute(writers, {"tables": list(VERSION_TABLES)}).all():
        role = grantee if grantee == "PUBLIC" else quote(grantee)
        connection.execute(
            text(f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {quote(table)} FROM {role}")
        )


def _require_tables(address: DatabaseUrl) -> None:
    with _engine(address) as engine, engine.connect() as connection:
        if not schema.exists(connection):
            raise EmptyDatabaseError(
                f"no studies yet in {address}; 'tuner launch' creates the first"
            )


@contextmanager
def reachable(address: DatabaseUrl) -> Iterator[Engine]:
    """The database as it is, with whatever tables it has:
    nothing is created and no version is refused.

    Raises:
        StorageError: it is not there, or cannot be reached.
    """
    require_name(address, os.environ)
    if address.is_sqlite:
        prepare_sqlite_file(address.sqlite_path, create=False)
    with in_one_line(address), _engine(address) as engine:
        yield engine


@contextmanager
def _engine(address: DatabaseUrl) -> Iterator[Engine]:
    engine = create_engine(address.url, **_engine_options(address))
    if address.is_sqlite:
        event.listen(engine, "begin", begin_on_sqlite)
    try:
        yield engine
    finally:
        engine.dispose()


def _engine_options(address: DatabaseUrl) -> dict[str, Any]:
    if address.is_sqlite:
        # Connections are cheap, and one that is kept open across a fork or a deleted file is a
        # trap.
        return {"poolclass": NullPool, "creator": sqlite_connector(address.sqlite_path)}
    options: dict[str, Any] = {
        "pool_pre_ping": True,
        # One is kept: hundreds of workers share a server that serves so many connections. Threads
        # that need more at the same moment open them, and close them again.
        "pool_size": 1,
        "max_overflow": 5,
        "pool_recycle": 1800,
    }
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S}
    # Beside the URL, so that nothing that prints a URL can print them.
    arguments |= address.parameters
    if address.password is not None:
        arguments["password"] = address.password
    arguments |= address.served.arguments(address.url.get_driver_name())
    return {**options, **address.served.engine_options, "connect_args": arguments}


def _begin_with(statements: str, connection: Any, _record: object) -> None:
    """On each new connection."""
    was = connection.autocommit
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statements)
    connection.autocommit = was


@contextmanager
def initialisation_lock(address: DatabaseUrl) -> Iterator[None]:
    """One process at a time creates tables or a study: two that do it at once both fail."""
    if address.is_sqlite:
        path = address.sqlite_path
        beside = path.with_name(path.name + ".lock")
        try:
            # filelock takes a file that cannot be made for one that is just deleted, and waits
            beside.touch()
            with filelock.FileLock(beside, timeout=SQLITE_TIMEOUT_S):
                yield
        except filelock.Timeout:
            raise StorageError(
                f"another process has held {path}.lock for {SQLITE_TIMEOUT_S:.0f} s"
            ) from None
        except OSError as error:
            raise StorageError(
                f"cannot write beside the database {path}: {error.strerror}; "
                "name a writable place by --storage sqlite:///FILE"
            ) from None
        return
    with _engine(address) as engine, engine.connect() as connection:
        connection.execute(text(address.served.lock))
        try:
            yield
        finally:
            connection.execute(text(address.served.unlock))
