"""The database's own clock, as seconds since 1970 (UTC): the one clock that all workers share.

Both functions are read where the statement runs, so neither a worker's clock nor anybody's time
zone has a part in it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction


class database_now(GenericFunction[float]):  # noqa: N801 - it reads as the SQL function that it is
    """Seconds since 1970 on the database server,
    read when the statement runs (not when the transaction began).
    """

    type = Double()
    inherit_cache = True
    name = "database_now"


@compiles(database_now, "postgresql")
def _postgresql(_element: object, _compiler: object, **_kw: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


@compiles(database_now, "sqlite")
def _sqlite(_element: object, _compiler: object, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_now, "mysql")
@compiles(database_now, "mariadb")
def _mysql(_element: object, _compiler: object, **_kw: Any) -> str:
    return "unix_timestamp(sysdate(6))"


class database_started(GenericFunction[float]):  # noqa: N801 - it reads as the SQL function that it is
    """When the database server started, in seconds since 1970;
    0 for SQLite, which has no server.
    """

    type = Double()
    inherit_cache = True
    name = "database_started"


@compiles(database_started, "postgresql")
def _postgresql_started(_element: object, _compiler: object, **_kw: Any) -> str:
    return "extract(epoch from pg_postmaster_start_time())::double precision"


@compiles(database_started, "sqlite")
def _sqlite_started(_element: object, _compiler: object, **_kw: Any) -> str:
    return "0.0"


@compiles(database_started, "mysql")
@compiles(database_started, "mariadb")
def _mysql_started(_element: object, compiler: Any, **_kw: Any) -> str:
    schema = "information_schema" if compiler.dialect.is_mariadb else "performance_schema"
    uptime = f"SELECT variable_value FROM {schema}.global_status WHERE variable_name = 'Uptime'"  # noqa: S608 - ours
    return f"(unix_timestamp(sysdate(6)) - ({uptime}))"
