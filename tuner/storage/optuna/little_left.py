"""That a search stopped by itself, kept with Optuna's own attributes of its study: read with each
claim, in the claim's transaction.
"""

from __future__ import annotations

from typing import Any

from optuna.storages._rdb.models import StudyUserAttributeModel
from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select

from tuner.storage.records import LittleLeft

LITTLE_LEFT = "tuner_little_left"
_attributes: Table = StudyUserAttributeModel.__table__


def little_left_of(connection: Connection, study_id: int) -> LittleLeft | None:
    """Why the search of a study stopped; None where it did not. What another program wrote there
    and is no such record counts as nothing.
    """
    query = select(_attributes.c.value_json).where(_mine(study_id))
    text = connection.execute(query).scalar_one_or_none()
    if text is None:
        return None
    try:
        return LittleLeft.model_validate_json(text, strict=True)
    except ValueError:
        return None


def write_little_left(connection: Connection, study_id: int, found: LittleLeft | None) -> None:
    """Keep the record in the place of what was there; None takes that away."""
    connection.execute(delete(_attributes).where(_mine(study_id)))
    if found is not None:
        values: dict[str, Any] = {"study_id": study_id, "key": LITTLE_LEFT}
        values["value_json"] = found.model_dump_json()
        connection.execute(insert(_attributes).values(values))


def _mine(study_id: int) -> ColumnElement[bool]:
    return (_attributes.c.study_id == study_id) & (_attributes.c.key == LITTLE_LEFT)
