"""Preparing a database: its tables made, or moved to this tuner's version. Never done by a launch
on the way.
"""

from __future__ import annotations

from sqlalchemy import Connection, inspect, select, text

from tuner.errors import EmptyDatabaseError, StorageError
from tuner.storage import schema
from tuner.storage.database import initialisation_lock, open_database, reachable
from tuner.storage.database_clock import database_now, database_started
from tuner.storage.dialects import LOCK_TIMEOUT_S
from tuner.storage.migrations import known_versions, migrate
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.storage.retry import RETRY_S
from tuner.storage.url import DatabaseUrl

BACK_WITHIN_S = 60.0
"""After an outage all workers that wait for the database have tried again by then."""
_CLAIMED_FIRST = (schema.studies, schema.claims, schema.verifications)
"""Locked in the order in which those lock them that claim, so that neither waits for the other."""
VERSION_TABLES = ("tuner_schema", "version_info", "alembic_version")
"""What says which version the tables have: ours, and Optuna's two."""


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


def upgrade(address: DatabaseUrl) -> int:
    """Move our tables to this tuner's version, under the initialisation lock; returns the version
    that they had.

    Raises:
        EmptyDatabaseError: there are none.
        StorageError: they are of a newer tuner, or workers are at work on them.
    """
    with reachable(address) as engine, initialisation_lock(address), engine.begin() as connection:
        if not schema.exists(connection):
            raise EmptyDatabaseError(f"there are no tuner tables in {address}; run: tuner db init")
        found = schema.version_of(connection)
        if found is None or found not in known_versions():
            raise StorageError(schema.describe_mismatch(found) or "")
        if found != schema.SCHEMA_VERSION:
            _wait_for_those_at_it(connection)
            _refuse_while_used(connection)
            migrate(connection, since=found, to=schema.SCHEMA_VERSION)
            _seal_versions(connection)
        return found


def _is_initialised(address: DatabaseUrl) -> bool:
    if address.is_sqlite and not address.sqlite_path.exists():
        return False
    with reachable(address) as engine, engine.connect() as connection:
        return schema.version_of(connection) is not None


def _wait_for_those_at_it(connection: Connection) -> None:
    """No claim, and no worker that signs in, is under way from here to the end: who claims looks at
    the version first, in the same transaction.

    On SQLite one transaction that writes is alone anyway. MariaDB and MySQL end a transaction with
    each change of a table, and so have no way to do this.
    """
    if connection.dialect.name != "postgresql":
        return
    there = set(inspect(connection).get_table_names())
    quote = connection.dialect.identifier_preparer.quote
    # Whoever may not change the tables is told so, not that it may not lock their version.
    others = [table for table in schema.metadata.sorted_tables if table is not schema.schema]
    ours = dict.fromkeys((*_CLAIMED_FIRST, *others))
    tables = ", ".join(quote(table.name) for table in ours if table.name in there)
    connection.execute(text(f"SET LOCAL lock_timeout = {round(LOCK_TIMEOUT_S * 1000)}"))
    connection.execute(text(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"))


def _refuse_while_used(connection: Connection) -> None:
    """Workers of the old version would fail on the new tables,
    or write what the new ones cannot read.
    """
    c = schema.workers.c
    now, started = database_now(), database_started()
    seen = now - c.seen_at < SILENT_AFTER_S
    # Nobody could be seen while the server was down: who was at work then is about to come back.
    back = (now - started < BACK_WITHIN_S) & (c.seen_at > started - RETRY_S)
    there = c.stopped.is_(False) & (seen | back)
    names = list(
        connection.execute(select(c.worker).where(there).distinct().order_by(c.worker)).scalars()
    )
    if names:
        raise StorageError(
            f"{len(names)} worker{'s are' if len(names) > 1 else ' is'} at work "
            f"({', '.join(names[:3])}): stop them "
            f"first; one that died is believed gone {SILENT_AFTER_S:.0f} s after it was last seen, "
            f"and {BACK_WITHIN_S:.0f} s after the database started"
        )


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
