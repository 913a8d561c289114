"""What Optuna keeps to itself: numbers of studies and trials, their storage, its tables.

Nothing else imports a private module of Optuna: its updates are looked after here.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages import BaseStorage
from optuna.storages._cached_storage import _CachedStorage as CachedStorage
from optuna.storages._rdb import models
from optuna.storages._rdb import storage as optuna_storage
from optuna.study import Study
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    text,
    type_coerce,
)

from tuner.spec.objectives import CONSTRAINTS
from tuner.storage.schema import TRIAL, work

STUDIES: Table = models.StudyModel.__table__
DIRECTIONS: Table = models.StudyDirectionModel.__table__
STUDY_USER: Table = models.StudyUserAttributeModel.__table__
STUDY_SYSTEM: Table = models.StudySystemAttributeModel.__table__
TRIALS: Table = models.TrialModel.__table__
PARAMS: Table = models.TrialParamModel.__table__
VALUES: Table = models.TrialValueModel.__table__
TRIAL_USER: Table = models.TrialUserAttributeModel.__table__
TRIAL_SYSTEM: Table = models.TrialSystemAttributeModel.__table__

__all__ = ["CachedStorage", "FrozenStudy", "models"]


# ruff: noqa: SLF001


def study_id_of(study: Study | FrozenStudy) -> int:
    """The number of a study in its storage."""
    return int(study._study_id)


def storage_of(study: Study) -> BaseStorage:
    return study._storage


def trial_id_of(trial: FrozenTrial) -> int:
    """The number of a trial in its storage, of all studies; `trial.number` is that in its own."""
    return int(trial._trial_id)


def numbered(trial: FrozenTrial, number: int, trial_id: int | None = None) -> None:
    """Give a trial this number in its study, and in its storage, which is the same where that holds
    one study alone.
    """
    trial.number, trial._trial_id = number, number if trial_id is None else trial_id


distribution_of: Callable[[str], BaseDistribution] = functools.lru_cache(maxsize=1024)(
    json_to_distribution
)
"""The distribution of a parameter's row, of its JSON."""


def as_stored(column: Any) -> ColumnElement[Any]:
    """What the database has in a column, whatever the column's type makes of it."""
    return type_coerce(column, String()).label(None)


# Studies by their names, in the caller's transaction.


def ids_of(connection: Connection, names: Sequence[str]) -> list[int]:
    """The numbers of the studies of these names that are there, the oldest first."""
    named = select(STUDIES.c.study_id).where(STUDIES.c.study_name.in_(names))
    return sorted(connection.execute(named).scalars())


def names_by_id(connection: Connection) -> dict[int, str]:
    """The names of all studies by their numbers, other programs' too."""
    query = select(STUDIES.c.study_id, STUDIES.c.study_name)
    return {int(row[0]): str(row[1]) for row in connection.execute(query)}


# How far trials are beyond the limits of their study, where `trial.set_constraint` of Optuna puts
# it.


PREFIX = f"{CONSTRAINTS}:"


def replace_constraints(
    engine: Engine, study_id: int, constraints: Mapping[int, Mapping[str, float]]
) -> None:
    """Let the results of a study have `constraints`, by trial number, and no others."""
    c = TRIAL_SYSTEM.c
    with engine.begin() as connection:
        rows = connection.execute(
            select(TRIALS.c.trial_id, TRIALS.c.number).where(TRIALS.c.study_id == study_id)
        )
        ids = {row.number: row.trial_id for row in rows}
        ours = (work.c.study_id == study_id) & (work.c.kind == TRIAL)
        mine = select(work.c.trial_id).where(ours & (work.c.state == "finished"))
        connection.execute(
            delete(TRIAL_SYSTEM).where(c.trial_id.in_(mine) & c.key.startswith(PREFIX))
        )
        new = [
            {"trial_id": ids[number], "key": f"{PREFIX}{key}", "value_json": json.dumps(value)}
            for number, of_trial in constraints.items()
            if number in ids  # else somebody deleted its row
            for key, value in of_trial.items()
        ]
        if new:
            connection.execute(insert(TRIAL_SYSTEM), new)


# Whether Optuna's tables are of the version that the installed Optuna wants, asked in plain SQL.


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
