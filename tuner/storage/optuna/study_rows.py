"""Studies and their attributes, read from Optuna's tables in plain SQL.

Optuna reads those of all studies at once, and one that is no JSON keeps every study from everybody.
Here such an attribute is its text: whoever needs it says what is wrong, and the others are read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from sqlalchemy import Connection, Table, select

from tuner.files.plain import UNREADABLE
from tuner.storage.optuna.private import as_stored

_studies: Table = models.StudyModel.__table__
_directions: Table = models.StudyDirectionModel.__table__
_user: Table = models.StudyUserAttributeModel.__table__
_system: Table = models.StudySystemAttributeModel.__table__


def all_studies(connection: Connection) -> list[FrozenStudy]:
    """As `RDBStorage.get_all_studies` has them, other programs' too, by their numbers."""
    named = select(_studies.c.study_id, _studies.c.study_name).order_by(_studies.c.study_id)
    found = connection.execute(named).all()
    d = _directions.c
    query = select(d.study_id, as_stored(d.direction)).order_by(d.study_direction_id)
    directions: dict[int, list[StudyDirection]] = defaultdict(list)
    for study_id, name in connection.execute(query):
        known = StudyDirection.__members__.get(str(name), StudyDirection.NOT_SET)
        directions[study_id].append(known)
    user, system = attributes(connection, _user), attributes(connection, _system)
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
    there = select(_studies.c.study_id).where(_studies.c.study_id == study_id)
    if connection.execute(there).first() is None:
        return None
    return attributes(connection, _user, study_id).get(study_id, {})


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
