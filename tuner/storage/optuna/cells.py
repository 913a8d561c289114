"""Cells that hold what their columns do not: text for a number, what is no date or no JSON.

A server refuses to store what is not of a column's type. SQLite stores it, and shows it to whoever
reads the row: where one is found, it is by SQL that costs a look at the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from optuna.storages._rdb import models
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Enum,
    Float,
    Integer,
    Select,
    Table,
    and_,
    func,
    null,
    or_,
    select,
)

from tuner.files.plain import UNREADABLE, excerpt, explained
from tuner.storage.optuna.private import as_stored
from tuner.storage.schema import backend_choices, claims, epochs, studies, verifications, workers

BACKUP = "restore it from a backup"
REPAIR = "'tuner db check --repair' puts back what tuner recorded; else restore a backup"
_TO_EMPTY = "restore it from a backup, or set it to NULL"

_trials: Table = models.TrialModel.__table__
_OF_STUDIES: tuple[Table, ...] = (
    models.StudyDirectionModel.__table__,
    models.StudyUserAttributeModel.__table__,
    models.StudySystemAttributeModel.__table__,
)
_OF_TRIALS: tuple[Table, ...] = (
    models.TrialParamModel.__table__,
    models.TrialValueModel.__table__,
    models.TrialUserAttributeModel.__table__,
    models.TrialSystemAttributeModel.__table__,
    models.TrialIntermediateValueModel.__table__,
)
_OURS = (studies, claims, epochs, verifications, workers, backend_choices)
_RESTORED = {
    "trials": ("number", "state"),
    "trial_params": ("param_value",),
    "trial_values": ("value", "value_type"),
    "trial_user_attributes": ("value_json",),
}
"""What `restore` of `tuner.storage.optuna.changed` writes, of a trial with a result."""
_KINDS = {"integer": "a whole number", "real": "a number", "text": "text"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One that is damaged: of which study and trial, and in which column of which table."""

    study_id: int
    trial: int | None
    column: str
    what: str
    remedy: str = BACKUP

    @property
    def key(self) -> tuple[int, int | None, str]:
        return self.study_id, self.trial, self.column


@dataclass(frozen=True, slots=True)
class _Place:
    """A table, and how its rows are found to be of a study and a trial."""

    table: Table
    study: ColumnElement[Any]
    trial: ColumnElement[Any]
    rows: Any

    def select(self, study_id: int | None, *more: ColumnElement[Any]) -> Select[Any]:
        ours = select(studies.c.study_id)
        mine: ColumnElement[bool] = (
            self.study.in_(ours) if study_id is None else self.study == study_id
        )
        query = select(as_stored(self.study), as_stored(self.trial), *more).select_from(self.rows)
        return query.where(mine).order_by(*self.table.primary_key)

    def cell(self, row: Any, name: str, what: str, remedy: str = "", *, of: str = "") -> Cell:
        number = row[1] if isinstance(row[1], int) else None
        remedy = remedy or (REPAIR if name in _RESTORED.get(self.table.name, ()) else BACKUP)
        return Cell(row[0], number, f"{self.table.name}.{name}{of}", what, remedy)


def _places() -> Iterator[_Place]:
    nothing = null()
    for table in (*_OURS, *_OF_STUDIES):
        number = table.c.trial_number if "trial_number" in table.c else nothing
        yield _Place(table, table.c.study_id, number, table)
    yield _Place(_trials, _trials.c.study_id, _trials.c.number, _trials)
    for table in _OF_TRIALS:
        both = table.join(_trials, table.c.trial_id == _trials.c.trial_id)
        yield _Place(table, _trials.c.study_id, _trials.c.number, both)


def odd_cells(connection: Connection, study_id: int | None) -> Iterator[Cell]:
    """Those whose value is of another type than their column's, or none of its choices."""
    if connection.dialect.name != "sqlite":
        return
    for place in _places():
        columns = list(place.table.columns)
        odd = [_is_odd(column) for column in columns]
        query = place.select(study_id, *map(as_stored, columns), *odd).where(or_(*odd))
        for row in connection.execute(query):
            values, found = row[2 : 2 + len(columns)], row[2 + len(columns) :]
            for column, value, is_odd in zip(columns, values, found, strict=True):
                if is_odd:
                    what = f"holds {excerpt(repr(value))}, expected {_expected(column)}"
                    yield place.cell(row, column.name, what)


def odd_dates(connection: Connection, study_id: int | None) -> Iterator[Cell]:
    """Times of trials that are text, and not that of a time."""
    if connection.dialect.name != "sqlite":
        return
    place = next(each for each in _places() if each.table is _trials)
    columns = [each for each in _trials.columns if isinstance(each.type, DateTime)]
    reads = [
        each.type.dialect_impl(connection.dialect).result_processor(connection.dialect, None)
        for each in columns
    ]
    for row in connection.execute(place.select(study_id, *map(as_stored, columns))):
        for column, value, read in zip(columns, row[2:], reads, strict=True):
            try:
                if read is not None:
                    read(value)
            except UNREADABLE:
                what = f"holds {excerpt(repr(value))}, expected a time as 2026-01-31 12:00:00"
                yield place.cell(row, column.name, what, _TO_EMPTY)


def odd_json(connection: Connection, study_id: int | None) -> Iterator[Cell]:
    """What is to be JSON, in Optuna's tables, and is none."""
    for place in _places():
        for name in {"value_json", "distribution_json"} & set(place.table.c.keys()):
            column = place.table.c[name]
            key = place.table.c["key" if name == "value_json" else "param_name"]
            query = place.select(study_id, column, key)
            if connection.dialect.name == "sqlite":  # which takes NaN for none, as JSON has none
                query = query.where(func.typeof(column) == "text", func.json_valid(column) == 0)
            for row in connection.execute(query):
                try:
                    json.loads(row[2])
                except UNREADABLE as error:
                    what = f"is no JSON ({explained(error)})"
                    yield place.cell(row, name, what, of=f" ({excerpt(str(row[3]))})")


def _is_odd(column: Column[Any]) -> ColumnElement[bool]:
    kinds = ["integer", "real"] if _kind(column) == "real" else [_kind(column)]
    kinds += ["null"] if column.nullable else []
    odd: ColumnElement[bool] = func.typeof(column).not_in(kinds)
    if isinstance(column.type, Enum):
        odd = or_(
            odd, and_(as_stored(column).is_not(None), as_stored(column).not_in(column.type.enums))
        )
    return odd.label(None)


def _kind(column: Column[Any]) -> str:
    if isinstance(column.type, Integer | Boolean):
        return "integer"
    return "real" if isinstance(column.type, Float) else "text"


def _expected(column: Column[Any]) -> str:
    if isinstance(column.type, Enum):
        return ", ".join(column.type.enums)
    return "a time" if isinstance(column.type, DateTime) else _KINDS[_kind(column)]
