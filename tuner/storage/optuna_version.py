"""Whether Optuna's tables are of the version that the installed Optuna wants, asked in plain SQL.

Optuna asks through alembic each time a storage is opened. To import alembic and its dialects takes a fifth of a second
of processor time, longer than all else that opening takes; and the answer is nearly always that all is well. Where it
is not, or cannot be told, Optuna asks as it always does, and has the last word.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.storages._rdb import storage as optuna_storage
from sqlalchemy import Engine, inspect, text

_Theirs = optuna_storage._VersionManager  # noqa: SLF001 - Optuna has no public way to give a storage another
_SCRIPTS = Path(optuna_storage.__file__).parent / "alembic" / "versions"
_REVISION = re.compile(r'^(down_)?revision = "([^"]+)"$', flags=re.MULTILINE)


class _InPlainSql(_Theirs):
    """Optuna's manager of versions, which leaves alembic alone where the tables are of the version wanted."""

    def _init_alembic(self) -> None:
        if current_version(self.engine) is None:
            super()._init_alembic()

    def check_table_schema_compatibility(self) -> None:
        current = current_version(self.engine)
        if current is None or current != wanted_version():
            super().check_table_schema_compatibility()


@contextmanager
def versions_in_plain_sql() -> Iterator[None]:
    """While this lasts, a new storage of Optuna's looks at versions without alembic."""
    optuna_storage._VersionManager = _InPlainSql  # type: ignore[misc]  # noqa: SLF001
    try:
        yield
    finally:
        optuna_storage._VersionManager = _Theirs  # type: ignore[misc]  # noqa: SLF001


def current_version(engine: Engine) -> str | None:
    """The version of Optuna's tables; None where there is none, or more than one."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return str(found[0]) if len(found) == 1 else None


@functools.cache
def wanted_version() -> str | None:
    """The version that nothing follows among the scripts of the installed Optuna; None where that is not one."""
    revisions: dict[str, set[str]] = {"": set(), "down_": set()}
    for script in _SCRIPTS.glob("*.py"):
        for down, name in _REVISION.findall(script.read_text(encoding="utf-8")):
            revisions[down].add(name)
    last = revisions[""] - revisions["down_"]
    return last.pop() if len(last) == 1 else None
