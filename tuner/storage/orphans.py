"""Studies of ours that another program deleted from Optuna's tables:
what is left of them is saved, then removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from tuner.errors import StorageError
from tuner.files.durable import write_durably
from tuner.storage import schema
from tuner.storage.database_clock import database_now
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.schema import claims, epochs, studies, verifications, workers

_TABLES = {
    "studies": studies,
    "claims": claims,
    "epochs": epochs,
    "verifications": verifications,
    "workers": workers,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """What is left of a study: our rows of it."""

    study_id: int
    what: str
    """Variant and task, where its definition can be read."""
    results: int
    running: int
    """Claims and verification runs whose lease has not run out: somebody is still at it."""

    @property
    def described(self) -> str:
        return f"study {self.study_id}{self.what}: {self.results} results"


def orphaned(connection: Connection) -> list[Orphan]:
    """Studies of which we have rows, and Optuna has not."""
    found: dict[int, str] = {}
    query = select(studies.c.study_id, studies.c.definition).where(
        ~optuna_rows.has_study(studies.c.study_id)
    )
    for study_id, definition in connection.execute(query):
        found[study_id] = _described(definition)
    for table in (claims, epochs, verifications):
        c = table.c.study_id
        rows = connection.execute(select(c).where(~optuna_rows.has_study(c)).distinct())
        for study_id in rows.scalars():
            found.setdefault(study_id, "")
    return [_orphan(connection, study_id, what) for study_id, what in sorted(found.items())]


def save(connection: Connection, orphan: Orphan, folder: Path) -> Path:
    """Write all that is left of a study to a new file in `folder`, and say which.

    Raises:
        StorageError: the file cannot be written.
    """
    document: dict[str, Any] = {
        "format": "tuner orphan",
        "version": 1,
        "study_id": orphan.study_id,
        "tables": {},
    }
    for name, table in _TABLES.items():
        rows = connection.execute(
            select(table).where(table.c.study_id == orphan.study_id)
        ).mappings()
        document["tables"][name] = [dict(row) for row in rows]
    text = json.dumps(document, separators=(",", ":")).encode()
    number = 0
    while (
        path := folder / f"deleted-study-{orphan.study_id}{f'-{number}' if number else ''}.json"
    ).exists():
        number += 1
    try:
        write_durably(path, text)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}), so nothing of study "
            f"{orphan.study_id} is removed"
        ) from None
    return path


def remove(connection: Connection, orphan: Orphan) -> None:
    """Delete our rows of it."""
    schema.forget_study(connection, orphan.study_id)


def _orphan(connection: Connection, study_id: int, what: str) -> Orphan:
    found = {"results": 0, "running": 0}
    for table in (claims, verifications):
        c = table.c
        mine = c.study_id == study_id
        at_work = (c.state == "running") & (c.leased_until > database_now())
        for name, condition in (("results", c.state == "finished"), ("running", at_work)):
            query = select(func.count()).select_from(table).where(mine & condition)
            found[name] += int(connection.execute(query).scalar_one())
    return Orphan(study_id=study_id, what=what, **found)


def _described(definition: str) -> str:
    try:
        data = json.loads(definition)
        return f" ({data['variant']} on {data['task']['name']})"
    except (ValueError, KeyError, TypeError):
        return ""
