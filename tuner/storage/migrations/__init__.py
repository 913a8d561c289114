"""How our tables come to be: one step a version. The present one is the baseline.

A database of another version is refused, so no step leads here from an earlier one. Whoever
changes the tables raises `SCHEMA_VERSION` and adds the step that leads to it.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert

from tuner.storage import schema


def baseline(connection: Connection) -> None:
    """All tables, or the rest of them where their creation was cut short. To be called
    under the initialisation lock.
    """
    schema.metadata.create_all(connection)
    connection.execute(insert(schema.schema).values(version=schema.SCHEMA_VERSION))
