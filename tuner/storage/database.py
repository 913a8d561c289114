"""A database opened, made and backed up: one engine that Optuna's storage and our tables share."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import optuna
from optuna.storages import RDBStorage
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tuner.errors import EmptyDatabaseError, StorageError, UsageError
from tuner.files.child import ran
from tuner.files.durable import replacing
from tuner.storage import schema
from tuner.storage.dialects import CONNECT_TIMEOUT_S
from tuner.storage.optuna.private import STUDIES, is_current, make_tables, versions_left_alone
from tuner.storage.optuna.trials import TrialStorage
from tuner.storage.retry import REMEDIES, persistently, remedy_among
from tuner.storage.sqlite import (
    SQLITE_TIMEOUT_S,
    begin_on_sqlite,
    prepare_sqlite_file,
    read_untouched,
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
    return address.masked(_first_line(error))


_REMEDIES = {
    "invalid connection option|invalid port number": "correct the URL",
    **REMEDIES,
    "too many c|connection slots": "let it serve more (max_connections: one for each worker, two "
    "for each launch; docs/several-machines.md), or stop some workers",
    "password|[aA]uthentication": "check the user and the password (TUNER_STORAGE, or a "
    "PGPASSFILE)",
    "does not exist": "create the database first (createdb), or correct the name",
}


def _sentence(address: DatabaseUrl, error: DBAPIError) -> str:
    """One line for a person: what failed, where, and what to check. Never the password."""
    cause = address.masked(_first_line(error.orig or error))
    otherwise = "check that the server runs and that host and port are right"
    if address.is_sqlite:
        otherwise = "check that the file is an SQLite database in a writable folder with free space"
    return f"{cause}; {remedy_among(_REMEDIES, cause) or otherwise}"


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


def read_only_storage(address: DatabaseUrl) -> Database:
    """Somebody's database with Optuna's tables, which nothing can be written to: an SQLite file is
    opened with `mode=ro`, a server's transactions are READ ONLY, and no table is made.

    Raises:
        StorageError: it is not there, or cannot be read.
        EmptyDatabaseError: it has none of these tables.
    """
    require_name(address, os.environ)
    options = _engine_options(address)
    if address.is_sqlite:
        prepare_sqlite_file(address.sqlite_path, create=False)
        options["creator"] = lambda: read_untouched(address.sqlite_path)
    elif address.dialect == "postgresql":
        options["execution_options"] = {"postgresql_readonly": True}
    else:
        options["connect_args"]["init_command"] = "SET SESSION TRANSACTION READ ONLY"
    with in_one_line(address), versions_left_alone():
        opened = Database(address, _storage(address, options))
        if not inspect(opened.engine).has_table(STUDIES.name):
            opened.close()
            raise EmptyDatabaseError(f"{address} has none of Optuna's tables")
        return opened


def _storage(
    address: DatabaseUrl, options: dict[str, Any], *, makes: bool = False, checks: bool = False
) -> TrialStorage:
    """Optuna's: whether it `makes` its tables, and `checks` their version."""
    whole = address.url.render_as_string(hide_password=False)
    return TrialStorage(  # which runs the URL through str.format: braces in a name must survive
        whole.replace("{", "{{").replace("}", "}}"),
        engine_kwargs=options,
        skip_table_creation=not makes,
        skip_compatibility_check=not checks,
    )


def _open(address: DatabaseUrl, *, create: bool) -> Database:
    with _engine(address) as engine:
        with engine.connect() as connection:
            there = schema.exists(connection)
        if create:
            make_tables(engine)
        elif not there:
            none = f"no studies yet in {address}; 'tuner launch' creates the first"
            raise EmptyDatabaseError(none)
        current = is_current(engine)
    with versions_left_alone() if current else contextlib.nullcontext():
        makes = create and not current
        storage = _storage(address, _engine_options(address), makes=makes, checks=not current)
    if address.is_sqlite:
        event.listen(storage.engine, "begin", begin_on_sqlite)
    elif at_connect := address.served.at_connect(address.url.get_driver_name()):
        event.listen(storage.engine, "connect", functools.partial(_begin_with, at_connect))
        storage.engine.dispose()  # the connections that Optuna has opened meanwhile
    with storage.engine.begin() as connection:
        found = schema.version_of(connection)
        if found is None and create:
            schema.create(connection)
        elif problem := schema.mismatch(found):
            raise StorageError(f"{address} {problem}")
    return Database(address, storage)


def initialise(address: DatabaseUrl) -> bool:
    """Create all tables. False when they were there already.

    Raises:
        StorageError: the database cannot be reached or written, or holds tables of another version.
    """
    there = False
    if not address.is_sqlite or address.sqlite_path.exists():
        with reachable(address) as engine, engine.connect() as connection:
            there = schema.version_of(connection) is not None
    open_database(address).close()
    with reachable(address) as engine, engine.begin() as connection:
        _seal_versions(connection)
    return not there


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
        revoked = f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {quote(table)} FROM {role}"
        connection.execute(text(revoked))


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


# A copy of a whole database at one moment, taken while workers go on. SQLite's own backup copies
# within one transaction of reading, so it holds up nobody who writes, and has what is in the log
# beside the file. PostgreSQL's `pg_dump` does the same on a server.


PG_DUMP = "pg_dump"


def back_up(address: DatabaseUrl, file: Path, *, overwrite: bool = False) -> None:
    """Write the database at `address`, whatever the version of its tables, to `file`: an SQLite
    file, or an archive for `pg_restore`. It is there whole or not at all.

    Raises:
        UsageError: the file is there already, without `overwrite`; or it is no plain file, or the
            database itself.
        EmptyDatabaseError: there are no tuner tables.
        StorageError: the database cannot be read, the file cannot be written, `pg_dump` is missing
            or fails, or it is a database of another kind.
    """
    if address.dialect not in ("sqlite", "postgresql"):
        raise StorageError(
            f"{address} is backed up by its own tools: mysqldump --single-transaction DATABASE"
        )
    _refuse(address, file, overwrite=overwrite)
    with reachable(address) as engine, engine.connect() as connection:
        if not schema.exists(connection):
            raise EmptyDatabaseError(f"there are no tuner tables in {address}; nothing to back up")
    try:
        # Never for others to read while it grows: what studies hold is nobody else's.
        with replacing(file, mode=0o600) as partial:
            (_copy_file if address.is_sqlite else _dump)(address, Path(partial.name))
            os.fsync(partial.fileno())
    except OSError as error:
        raise StorageError(
            f"cannot write the backup {file}: {error.strerror}; name another place"
        ) from None


def _refuse(address: DatabaseUrl, file: Path, *, overwrite: bool) -> None:
    if file.is_dir():
        raise UsageError(f"{file}: is a folder; name a file")
    if not file.exists():
        return
    if not file.is_file():
        raise UsageError(f"{file}: is a pipe or a device, and would keep no backup; name a file")
    if address.is_sqlite and address.sqlite_path.exists() and file.samefile(address.sqlite_path):
        raise UsageError(f"{file}: is the database itself; name another file")
    if not overwrite:
        raise UsageError(
            f"{file}: is there already; name another file, or say --force to write over it"
        )


def _copy_file(address: DatabaseUrl, partial: Path) -> None:
    try:
        with (
            contextlib.closing(sqlite_connector(address.sqlite_path)()) as source,
            contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, with no log beside it
            (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise StorageError(
            f"the database {address} could not be copied: {error}; check the disk, and "
            "'tuner db check' looks at the database"
        ) from None
    if found != "ok":
        raise StorageError(
            f"the copy of {address} is damaged, and so is the database: {found}; "
            "'tuner db check' says more"
        )


def _dump(address: DatabaseUrl, partial: Path) -> None:
    url = address.url.set(drivername="postgresql")
    command = [PG_DUMP, "--no-password", "--format=custom"]
    where = url.render_as_string(hide_password=False)  # the password stands apart
    if shutil.which(PG_DUMP) is None:
        shown = shlex.join([*command, "--file=FILE", f"--dbname={where}"])
        raise StorageError(
            f"{PG_DUMP} is not installed here (a package postgresql-client has it); where it is, "
            f"run: {shown}"
        )
    if address.parameters:
        names = ", ".join(sorted(address.parameters))
        raise StorageError(
            f"{PG_DUMP} takes no secrets from the URL ({names}); run it yourself, with these in a "
            "service file"
        )
    environment = dict(os.environ)
    if address.password is not None:
        environment["PGPASSWORD"] = address.password
    done = ran([*command, f"--file={partial}", f"--dbname={where}"], environment=environment)
    if done.code:
        said = [line.strip() for line in done.said.splitlines() if "error" in line]
        cause = (said or ["it said nothing"])[0].removeprefix("pg_dump: ").removeprefix("error: ")
        cause = address.masked(cause)
        raise StorageError(
            f"{PG_DUMP} could not copy {address}: {cause}; it has to be of the server's version or "
            "newer, and its role has to read all tables (docs/several-machines.md)"
        )
