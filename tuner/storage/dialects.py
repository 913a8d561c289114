"""The databases we serve: all that tells one from another.

This is all there is to write for a new one that SQLAlchemy and Optuna know. Its driver goes into
pyproject.toml, and the tests' `databases.py` runs every storage test on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Double, Engine, select
from sqlalchemy.engine import Dialect as Connected
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

CONNECT_TIMEOUT_S = 10
SILENCE_TIMEOUT_S = 30
"""A PostgreSQL server that answers nothing at all for this long is taken for gone, its connection
for broken."""
IDLE_TRANSACTION_TIMEOUT_S = 30.0
"""The server ends a transaction whose client does nothing for this long: it may be frozen, and
holds locks."""
READING = "tuner_reading"
"""Execution option of a connection that will write nothing:
on SQLite it then holds up nobody who does."""

DURABLE = "tuner_durable"
"""Execution option of a transaction that is to be on the disk when it is over, whatever becomes of
the power. SQLite alone leaves that to the system otherwise, which is enough for all that can be
done again."""

LOCK_TIMEOUT_S = 60.0
"""A statement that waits longer for a lock fails, to be tried again."""
_LIBPQ_DRIVERS = ("psycopg", "psycopg2")
_INIT_LOCK_KEY = 0x74756E6572  # "tuner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One kind of database: how its server is spoken to."""

    title: str
    """What people call it."""
    driver: str
    """What SQLAlchemy opens it with, where a URL names no driver."""
    now: str
    """SQL: seconds since 1970 when the statement runs, not when its transaction began."""
    started: str
    """SQL: when the server started, in seconds since 1970; 0 where there is none."""
    lock: str = ""
    """SQL: waits until no other connection has what `unlock` gives up. One process at a time
    creates tables or a study under it; an SQLite file has a lock file instead."""
    unlock: str = ""
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """Of SQLAlchemy's engine, beside those that all servers have."""
    arguments: Callable[[str], dict[str, Any]] = lambda _driver: {}
    """Of a connection, by the driver's name."""
    at_connect: Callable[[str], str] = lambda _driver: ""
    """SQL that each new connection begins with, by the driver's name."""


def _postgresql_arguments(driver: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"application_name": "tuner"}
    if driver in _LIBPQ_DRIVERS:
        # A server that vanishes without a word (a cut cable, a lost host) must not be waited for
        # without end.
        arguments["keepalives_idle"] = SILENCE_TIMEOUT_S // 2
        arguments["keepalives_interval"] = 5
        arguments["keepalives_count"] = 3
        arguments["tcp_user_timeout"] = SILENCE_TIMEOUT_S * 1000
    return arguments


def _postgresql_limits(driver: str) -> str:
    """Not by the URL's `options`, which poolers refuse."""
    if driver not in _LIBPQ_DRIVERS:
        return ""
    return (
        f"SET idle_in_transaction_session_timeout = {round(IDLE_TRANSACTION_TIMEOUT_S * 1000)};"
        f"SET lock_timeout = {round(LOCK_TIMEOUT_S * 1000)}"
    )


def _mysql(title: str, schema: str) -> Dialect:
    """MariaDB and MySQL differ in where the server says how long it has been up."""
    uptime = f"SELECT variable_value FROM {schema}.global_status WHERE variable_name = 'Uptime'"  # noqa: S608 - ours
    return Dialect(
        title=title,
        driver="mysql+pymysql",
        now="unix_timestamp(sysdate(6))",
        started=f"(unix_timestamp(sysdate(6)) - ({uptime}))",
        lock="SELECT get_lock('tuner-init', 60)",
        unlock="SELECT release_lock('tuner-init')",
        # As PostgreSQL's: the usual one here locks the gaps between rows, and two that settle at
        # once deadlock.
        engine_options={"isolation_level": "READ COMMITTED"},
    )


DIALECTS: Mapping[str, Dialect] = {
    "sqlite": Dialect(
        title="SQLite",
        driver="sqlite",
        now="((julianday('now') - 2440587.5) * 86400.0)",
        started="0.0",
    ),
    "postgresql": Dialect(
        title="PostgreSQL",
        driver="postgresql+psycopg",
        now="extract(epoch from clock_timestamp())::double precision",
        started="extract(epoch from pg_postmaster_start_time())::double precision",
        lock=f"SELECT pg_advisory_lock({_INIT_LOCK_KEY})",
        unlock=f"SELECT pg_advisory_unlock({_INIT_LOCK_KEY})",
        arguments=_postgresql_arguments,
        at_connect=_postgresql_limits,
    ),
    "mysql": _mysql("MySQL", "performance_schema"),
    "mariadb": _mysql("MariaDB", "information_schema"),
}
"""By the name that a URL begins with, which is SQLAlchemy's too."""

OTHER_NAMES = {"postgres": "postgresql"}


def named(scheme: str) -> Dialect | None:
    """What a URL that begins with `scheme` means; None where we do not serve that."""
    return DIALECTS.get(OTHER_NAMES.get(scheme, scheme))


def of(connected: Connected) -> Dialect:
    """What answers at the other end: a MariaDB also where the URL says mysql."""
    return DIALECTS["mariadb" if getattr(connected, "is_mariadb", False) else connected.name]


# The database's own clock, as seconds since 1970 (UTC): the one clock that all workers share.


_LOOKS = 3


class database_now(GenericFunction[float]):  # noqa: N801 - it reads as the SQL function that it is
    """Seconds since 1970 on the database server,
    read when the statement runs (not when the transaction began).
    """

    type = Double()
    inherit_cache = True
    name = "database_now"


@compiles(database_now)
def _now(_element: object, compiler: Any, **_kw: Any) -> str:
    return of(compiler.dialect).now


class database_started(GenericFunction[float]):  # noqa: N801 - it reads as the SQL function that it is
    """When the database server started, in seconds since 1970;
    0 for SQLite, which has no server.
    """

    type = Double()
    inherit_cache = True
    name = "database_started"


@compiles(database_started)
def _started(_element: object, compiler: Any, **_kw: Any) -> str:
    return of(compiler.dialect).started


def clock_skew_s(engine: Engine) -> float:
    """By how many seconds this host's clock is ahead of the database's, to within the time that an
    answer takes.

    Raises:
        DBAPIError: the database is away.
    """
    found: list[tuple[float, float]] = []
    with engine.connect() as connection:
        for _ in range(_LOOKS):
            asked = time.time()
            there = float(connection.execute(select(database_now())).scalar_one())
            heard = time.time()
            found.append((heard - asked, (asked + heard) / 2 - there))
    return min(found)[1]
