"""What tuner notes with Optuna's own attributes of a study, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.storages._rdb.models import StudyModel, StudyUserAttributeModel
from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select

from tuner.storage.records import LittleLeft

_studies: Table = StudyModel.__table__
_attributes: Table = StudyUserAttributeModel.__table__


def ids_of(connection: Connection, names: Sequence[str]) -> list[int]:
    """The numbers of the studies of these names that are there, the oldest first."""
    named = select(_studies.c.study_id).where(_studies.c.study_name.in_(names))
    return sorted(connection.execute(named).scalars())


def names_by_id(connection: Connection) -> dict[int, str]:
    """The names of all studies by their numbers, other programs' too."""
    query = select(_studies.c.study_id, _studies.c.study_name)
    return {int(row[0]): str(row[1]) for row in connection.execute(query)}


def read_notes(connection: Connection, ids: Sequence[int], key: str) -> dict[int, str]:
    """The JSON that is noted under `key`, by study, where there is any."""
    theirs = _attributes.c.study_id.in_(ids) & (_attributes.c.key == key)
    query = select(_attributes.c.study_id, _attributes.c.value_json).where(theirs)
    return {int(row[0]): str(row[1]) for row in connection.execute(query)}


def write_note(connection: Connection, study_id: int, key: str, text: str) -> None:
    """Note it in the place of what was there; nothing where there is no such study."""
    there = select(func.count()).select_from(_studies).where(_studies.c.study_id == study_id)
    if not connection.execute(there).scalar_one():
        return
    connection.execute(delete(_attributes).where(_mine(study_id, key)))
    values = {"study_id": study_id, "key": key, "value_json": text}
    connection.execute(insert(_attributes).values(values))


def _mine(study_id: int, key: str) -> ColumnElement[bool]:
    return (_attributes.c.study_id == study_id) & (_attributes.c.key == key)


# That a search stopped by itself, kept with Optuna's own attributes of its study: read with each
# claim, in the claim's transaction.


LITTLE_LEFT = "tuner_little_left"


def little_left_of(connection: Connection, study_id: int) -> LittleLeft | None:
    """Why the search of a study stopped; None where it did not. What another program wrote there
    and is no such record counts as nothing.
    """
    text = read_notes(connection, [study_id], LITTLE_LEFT).get(study_id)
    if text is None:
        return None
    try:
        return LittleLeft.model_validate_json(text, strict=True)
    except ValueError:
        return None


def write_little_left(connection: Connection, study_id: int, found: LittleLeft | None) -> None:
    """Keep the record in the place of what was there; None takes that away."""
    if found is not None:
        write_note(connection, study_id, LITTLE_LEFT, found.model_dump_json())
    else:
        connection.execute(delete(_attributes).where(_mine(study_id, LITTLE_LEFT)))
