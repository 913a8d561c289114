"""Rows that nobody can read, as an edit or a failing disk leaves them.

Each stored record is validated where it is read. Who reads a study hears of the first one that is
damaged; `tuner db check` reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import PlainValidator, TypeAdapter, ValidationError
from sqlalchemy import Engine, Row, Table, text

from tuner.errors import StorageError
from tuner.files.plain import UNREADABLE, explained
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import ATTRIBUTE, Membership
from tuner.storage.dialects import READING

T = TypeVar("T")


class DamagedRowError(ValueError):
    """A stored value is none of ours: the number of the trial that it is of, None of what belongs
    to the whole study, and in which column of which table it is.
    """

    def __init__(self, trial: Any, what: str) -> None:
        super().__init__(what)
        of = f" trial {trial}" if isinstance(trial, int) else ""
        self.of_study = f"{of}: {what}; restore it from a backup"
        """What follows the name of the study."""


@contextmanager
def cell(column: str, trial: Any = None) -> Iterator[None]:
    """Around what reads one column. Raises DamagedRowError where that fails."""
    try:
        yield
    except DamagedRowError:
        raise
    except UNREADABLE as error:
        raise DamagedRowError(trial, f"{column}: {explained(error)}") from error


def read_rows(model: TypeAdapter[list[T]], table: Table, rows: Sequence[Row[Any]]) -> list[T]:
    """The records of some rows, whose columns are named as the model's fields.

    Raises:
        DamagedRowError: a column holds what its field does not take.
    """
    try:
        return model.validate_python([dict(row._mapping) for row in rows])  # noqa: SLF001
    except ValidationError as error:
        row = rows[int(error.errors()[0]["loc"][0])]
        number = row.trial_number if "trial_number" in row._fields else row.number
        what = explained(error).partition(".")[2]
        raise DamagedRowError(number, f"{table.name}.{what}") from error


def from_text(read: Callable[[Any], object]) -> PlainValidator:
    """How a field reads the JSON in its column."""

    def validated(stored: Any) -> object:
        try:
            return read(stored)
        except UNREADABLE as error:
            raise ValueError(explained(error)) from error

    return PlainValidator(validated)


@contextmanager
def damage_named(engine: Engine, study_id: int) -> Iterator[None]:
    """Around what reads a study. Raises StorageError where a row of it is damaged."""
    try:
        yield
    except DamagedRowError as error:
        with engine.connect().execution_options(**{READING: True}) as connection:
            query = text("SELECT study_name FROM studies WHERE study_id = :id")
            name = connection.execute(query, {"id": study_id}).scalar_one_or_none() or study_id
        where, _, what = error.of_study.partition(": ")
        raise StorageError(
            f"study {name!r}{where} cannot be read: {what} ('tuner db check' lists all that is "
            "damaged)"
        ) from error


def stored_definition(name: str, stored: str) -> StudyDefinition:
    """What a study is. Raises StorageError where it is another version's, or damaged."""
    try:
        return StudyDefinition.from_json(stored)
    except UNREADABLE as error:
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read ({explained(error)}): it was "
            "made by another version of tuner, or is damaged; use that version, restore a backup, "
            "or start another study with --study NAME"
        ) from None


def stored_membership(name: str, stored: Any) -> Membership:
    """Its place in a group. Raises StorageError where it is another program's, or damaged."""
    try:
        return Membership.model_validate(stored, strict=True)
    except UNREADABLE as error:
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read ({ATTRIBUTE}: "
            f"{explained(error)}): which search of which group it is was written by another "
            "program, or is damaged; restore a backup, or start another study with --study NAME"
        ) from None
