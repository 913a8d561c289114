"""From one version of our tables to the next: Alembic's scripts and operations, with `tuner_schema`
as their record.

`versions/` holds one script a version; the script of revision "2" leads from version 1 to 2.
Alembic's own version table and environment are not used: Optuna keeps its `alembic_version` in the
same database, and a second record of our version would be one that can disagree with the first.
"""

from __future__ import annotations

from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, update

from tuner.storage import schema

_FOLDER = Path(__file__).parent


def known_versions() -> tuple[int, ...]:
    """The versions that the scripts know, oldest first."""
    return tuple(sorted(int(script.revision) for script in _scripts().walk_revisions()))


def migrate(connection: Connection, *, since: int, to: int) -> None:
    """Change the tables of version `since` into those of version `to`, in the caller's transaction.

    PostgreSQL and SQLite take this back as a whole when it fails; MariaDB and MySQL commit every
    change of a table.
    """
    steps = reversed(list(_scripts().iterate_revisions(str(to), str(since))))
    with Operations.context(MigrationContext.configure(connection)):
        for step in steps:
            step.module.upgrade()
            connection.execute(update(schema.schema).values(version=int(step.revision)))


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(_FOLDER, version_locations=[_FOLDER / "versions"])
