"""Optuna's SQL storage, of which a damaged study hides no other one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from sqlalchemy import (
    Connection,
    Engine,
    Table,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from tuner.files.plain import UNREADABLE
from tuner.storage.dialects import READING
from tuner.storage.optuna.private import (
    DIRECTIONS,
    STUDIES,
    STUDY_SYSTEM,
    STUDY_USER,
    FrozenStudy,
    as_stored,
    models,
)

# Studies and their attributes, read from Optuna's tables in plain SQL.


def all_studies(connection: Connection) -> list[FrozenStudy]:
    """As `RDBStorage.get_all_studies` has them, other programs' too, by their numbers."""
    named = select(STUDIES.c.study_id, STUDIES.c.study_name).order_by(STUDIES.c.study_id)
    found = connection.execute(named).all()
    d = DIRECTIONS.c
    query = select(d.study_id, as_stored(d.direction)).order_by(d.study_direction_id)
    directions: dict[int, list[StudyDirection]] = defaultdict(list)
    for study_id, name in connection.execute(query):
        known = StudyDirection.__members__.get(str(name), StudyDirection.NOT_SET)
        directions[study_id].append(known)
    user, system = attributes(connection, STUDY_USER), attributes(connection, STUDY_SYSTEM)
    return [
        FrozenStudy(
            study_name=str(name),
            direction=None,
            directions=directions[study_id],
            user_attrs=user.get(study_id, {}),
            system_attrs=system.get(study_id, {}),
            study_id=study_id,
        )
        for study_id, name in found
    ]


def user_attributes(connection: Connection, study_id: int) -> dict[str, Any] | None:
    """Those of one study; None where there is no such study."""
    there = select(STUDIES.c.study_id).where(STUDIES.c.study_id == study_id)
    if connection.execute(there).first() is None:
        return None
    return attributes(connection, STUDY_USER, study_id).get(study_id, {})


def attributes(
    connection: Connection, table: Table, study_id: int | None = None
) -> dict[int, dict[str, Any]]:
    """Of one study, or (None) of all, by their numbers."""
    c = table.c
    query = select(c.study_id, c.key, c.value_json).order_by(*table.primary_key)
    if study_id is not None:
        query = query.where(c.study_id == study_id)
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for number, key, text in connection.execute(query):
        found[number][key] = _value(text)
    return found


def _value(text: Any) -> Any:
    try:
        return json.loads(text)
    except UNREADABLE:
        return text


FAILED = "studies and trials could not be read"
"""Said where the database fails; the cause says why."""


class TrialStorage(RDBStorage):
    """An `RDBStorage` that reads studies beside a damaged one."""

    def get_all_studies(self) -> list[FrozenStudy]:
        with reading(self.engine) as connection:
            return all_studies(connection)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        with reading(self.engine) as connection:
            found = user_attributes(connection, study_id)
        if found is None:
            raise KeyError(models.NOT_FOUND_MSG)
        return found


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection for reading trials, whose failures are raised as Optuna raises them.

    One transaction for each statement: between them there is much to parse, and a server that waits
    for a client in the middle of a transaction takes it for frozen. On SQLite one for all of them,
    which holds nobody up.
    """
    options = (
        {READING: True} if engine.dialect.name == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    )
    with _as_optuna_fails(), engine.connect().execution_options(**options) as connection:
        yield connection


@contextmanager
def _as_optuna_fails() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise StorageInternalError(FAILED) from error
