"""The database's own clock, as seconds since 1970 (UTC): the one clock that all workers share.

Both functions are read where the statement runs, so neither a worker's clock nor anybody's time
zone has a part in it.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Double, Engine, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from tuner.storage.dialects import of

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
