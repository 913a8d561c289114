"""Rows of a study that nobody can read, as an edit or a failing disk leaves them: which they are,
and what is wrong with them.

Whoever reads a study trusts its rows, so that reading costs no more than it must. Only where that
fails are they looked at one by one, to name the one that is damaged; `tuner db check` looks at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, select

from tuner.errors import StorageError
from tuner.files.plain import UNREADABLE, excerpt, explained
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import ATTRIBUTE as MEMBERSHIP
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.storage.optuna.cells import BACKUP, REPAIR, Cell, odd_cells, odd_dates, odd_json
from tuner.storage.optuna.private import STUDIES
from tuner.storage.optuna.study_notes import names_by_id, read_notes
from tuner.storage.optuna.trials import reading
from tuner.storage.records import whole_result
from tuner.storage.schema import claims, studies

_OTHER_VERSION = "use the version of tuner that wrote it, or restore it from a backup"
_CLAIM_STATES = ("running", "finished", "returned", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that cannot be read."""

    study_id: int
    study: str
    trial: int | None
    """Its number; None of what belongs to the whole study."""
    what: str
    """Which column of which table, what is wrong, and what was expected."""
    remedy: str

    @property
    def where(self) -> str:
        return self.study if self.trial is None else f"{self.study} trial {self.trial}"

    @property
    def described(self) -> str:
        """In one line, with what to do."""
        return f"{self.where}: {self.what}; {self.remedy}"


def damages(connection: Connection, study_id: int | None = None) -> Iterator[Damage]:
    """What cannot be read of one of our studies, or (None) of all: of each cell what is wrong."""
    names = names_by_id(connection)
    looks: tuple[Callable[[Connection, int | None], Iterator[Cell]], ...] = (
        _studies,
        _results,
        odd_cells,
        odd_dates,
        odd_json,
    )
    seen: set[tuple[int, int | None, str]] = set()
    for look in looks:
        for cell in look(connection, study_id):
            if cell.study_id not in names or cell.key in seen:
                continue  # of a deleted study nothing is read; one look at a cell is enough
            seen.add(cell.key)
            yield Damage(
                study_id=cell.study_id,
                study=names[cell.study_id],
                trial=cell.trial,
                what=f"{cell.column} {cell.what}",
                remedy=cell.remedy,
            )


@contextmanager
def damage_named(engine: Engine, study_id: int) -> Iterator[None]:
    """Around what reads a study, outside of any transaction.

    Raises:
        StorageError: that failed, and this row of the study is why. A failure of a study without
            damage is one of our own, and stays as it is.
    """
    try:
        yield
    except UNREADABLE as error:
        with reading(engine) as connection:
            found = next(damages(connection, study_id), None)
        if found is None:
            raise
        trial = "" if found.trial is None else f" trial {found.trial}"
        raise StorageError(
            f"study {found.study!r}{trial} cannot be read: {found.what}; {found.remedy} ('tuner db "
            "check' lists all that is damaged)"
        ) from error


def _studies(connection: Connection, study_id: int | None) -> Iterator[Cell]:
    """What each study is, how it is searched, and of which group it is."""
    s = studies.c
    there = s.study_id.in_(select(STUDIES.c.study_id)) & _only(s.study_id, study_id)
    rows = connection.execute(select(s.study_id, s.definition, s.policy).where(there)).all()
    places = read_notes(connection, [row.study_id for row in rows], MEMBERSHIP)
    for row in rows:
        parts: tuple[tuple[str, Callable[[Any], object], Any], ...] = (
            ("tuner_studies.definition", StudyDefinition.from_json, row.definition),
            ("tuner_studies.policy", SearchPolicy.from_json, row.policy),
            (
                f"study_user_attributes.value_json ({MEMBERSHIP})",
                _read_membership,
                places.get(row.study_id, "null"),
            ),
        )
        for column, read, text in parts:
            if (why := _why_not(read, text)) is not None:
                what = f"cannot be read ({why})"
                yield Cell(row.study_id, None, column, what, _OTHER_VERSION)


def _results(connection: Connection, study_id: int | None) -> Iterator[Cell]:
    """The claims of trials: their states, and each result."""
    c = claims.c
    query = select(c.study_id, c.trial_number, c.state, c.result).where(_only(c.study_id, study_id))
    for study, trial, state, text in connection.execute(query.order_by(c.study_id, c.claim_id)):
        number = trial if isinstance(trial, int) else None
        if state not in _CLAIM_STATES:
            what = f"holds {excerpt(repr(state))}, expected {', '.join(_CLAIM_STATES)}"
            yield Cell(study, number, "tuner_claims.state", what)
        if text is None and state != "finished":
            continue
        if (why := _why_not(_check_result, text)) is not None:
            what = f"is not the JSON of a trial's result ({why})"
            yield Cell(study, number, "tuner_claims.result", what)


def _read_membership(text: str) -> Membership:
    return Membership.model_validate(json.loads(text), strict=True)


def _check_result(text: Any) -> None:
    if text is None:
        raise ValueError("it is empty, and the trial has finished")
    whole_result(text)


def _why_not(read: Callable[[Any], object], text: Any) -> str | None:
    """What is wrong with what cannot be read."""
    try:
        read(text)
    except StorageError as error:  # which is a whole sentence
        return str(error).partition("; ")[0]
    except UNREADABLE as error:
        return explained(error)
    return None


def _only(column: ColumnElement[int], study_id: int | None) -> ColumnElement[bool]:
    return column == study_id if study_id is not None else column.is_not(None)


__all__ = ["BACKUP", "REPAIR", "Damage", "damage_named", "damages"]
