"""Whether Optuna's tables are of the version that the installed Optuna wants, asked in plain SQL.

Optuna asks through alembic each time a storage is opened. To import alembic and its dialects takes
a fifth of a second of processor time, longer than all else that opening takes; and the answer is
nearly always that all is well, or that the tables were made a moment ago and are of the newest
version. Where it is neither, or cannot be told, Optuna asks as it always does, and has the last
word.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.storages._rdb import storage as optuna_storage
from sqlalchemy import (
    Column,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    text,
)

_SCRIPTS = Path(optuna_storage.__file__).parent / "alembic" / "versions"
_REVISION = re.compile(r'^(down_)?revision = "([^"]+)"$', flags=re.MULTILINE)
_MANAGER = "_VersionManager"
"""Optuna's, and private: there is no public way to give a storage another. Where it is gone, Optuna
asks as always."""
_STEPS = ("_init_alembic", "_is_alembic_supported", "check_table_schema_compatibility")
"""What its manager of versions does while a storage opens; but for the second, which knows whether
the tables are of today, each goes through alembic."""
_VERSIONS = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As alembic makes it."""


@contextmanager
def versions_in_plain_sql() -> Iterator[None]:
    """While this lasts, a new storage of Optuna's leaves
    alembic alone where its tables are of the version wanted.
    """
    theirs = _managers_of_optuna()
    if theirs is None:
        yield
        return
    setattr(optuna_storage, _MANAGER, _asking_in_plain_sql(theirs))
    try:
        yield
    finally:
        setattr(optuna_storage, _MANAGER, theirs)


@functools.cache
def _managers_of_optuna() -> type | None:
    """Optuna's class, looked up before anything was put in its place; None where it has not the
    steps we know.
    """
    found = getattr(optuna_storage, _MANAGER, None)
    return (
        found if isinstance(found, type) and all(hasattr(found, step) for step in _STEPS) else None
    )


@functools.cache
def _asking_in_plain_sql(theirs: type) -> type:
    class InPlainSql(theirs):  # type: ignore[misc]
        def _init_alembic(self) -> None:
            if current_version(self.engine) is not None:
                return
            wanted = wanted_version()
            if wanted is None or not self._is_alembic_supported() or _knows_versions(self.engine):
                super()._init_alembic()
            else:
                _stamp(self.engine, wanted)

        def check_table_schema_compatibility(self) -> None:
            current = current_version(self.engine)
            if current is None or current != wanted_version():
                super().check_table_schema_compatibility()

    return InPlainSql


def current_version(engine: Engine) -> str | None:
    """The version of Optuna's tables; None where there is none, or more than one."""
    if not _knows_versions(engine):
        return None
    with engine.connect() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return str(found[0]) if len(found) == 1 else None


def _knows_versions(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(inspect(connection).has_table(_VERSIONS.name))


def _stamp(engine: Engine, version: str) -> None:
    """Tables that were made a moment ago are of this version."""
    with engine.begin() as connection:
        _VERSIONS.create(connection)
        connection.execute(insert(_VERSIONS).values(version_num=version))


@functools.cache
def wanted_version() -> str | None:
    """The version that nothing follows among the scripts of the installed Optuna; None where that
    is not one.
    """
    revisions: dict[str, set[str]] = {"": set(), "down_": set()}
    for script in _SCRIPTS.glob("*.py"):
        for down, name in _REVISION.findall(script.read_text(encoding="utf-8")):
            revisions[down].add(name)
    last = revisions[""] - revisions["down_"]
    return last.pop() if len(last) == 1 else None
