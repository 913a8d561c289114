"""Optuna's SQL storage, with trials read in plain SQL.

Optuna reads each trial, parameter, value and attribute as an object of its mapper, and a
distribution from JSON for each parameter: for a long history that takes most of the time of asking
and of showing it. This reads the same rows into the same `FrozenTrial`s; tests compare the two.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    String,
    Table,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.exc import SQLAlchemyError

from tuner.files.plain import UNREADABLE, Loose
from tuner.storage.dialects import READING
from tuner.storage.optuna.private import (
    DIRECTIONS,
    INTERMEDIATE,
    PARAMS,
    STUDIES,
    STUDY_SYSTEM,
    STUDY_USER,
    TRIAL_SYSTEM,
    TRIAL_USER,
    TRIALS,
    VALUES,
    as_stored,
)
from tuner.storage.records import read_rows

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

FEW = 100
"""Trials that a statement names by their ids at most."""


_distribution: Callable[[str], BaseDistribution] = functools.lru_cache(maxsize=1024)(
    json_to_distribution
)


class TrialRow(Loose):
    """A trial as Optuna's table has it."""

    trial_id: int
    number: int
    state: Literal["RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"]
    datetime_start: datetime | None
    datetime_complete: datetime | None


ROWS = TypeAdapter(list[TrialRow])


class TrialStorage(RDBStorage):
    """An `RDBStorage` that reads trials several times as fast, and studies beside a damaged one."""

    def get_all_studies(self) -> list[FrozenStudy]:
        with reading(self.engine) as connection:
            return all_studies(connection)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        with reading(self.engine) as connection:
            found = user_attributes(connection, study_id)
        if found is None:
            raise KeyError(models.NOT_FOUND_MSG)
        return found

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        """Trials of a study: the included ones and those beyond an id (-1:
        all), of these states, by id.

        Raises:
            KeyError: there is no such study.
            StorageInternalError: the database failed.
        """
        wanted = TRIALS.c.study_id == study_id
        if states is not None:
            wanted &= TRIALS.c.state.in_([state for state in TrialState if state in states])
        if trial_id_greater_than > -1:
            known = [
                trial_id for trial_id in included_trial_ids if trial_id <= trial_id_greater_than
            ]
            wanted &= or_(TRIALS.c.trial_id > trial_id_greater_than, TRIALS.c.trial_id.in_(known))
        with reading(self.engine) as connection:
            found = {trial._trial_id: trial for trial in bare_trials(connection, wanted)}  # noqa: SLF001
            if found:
                # After the trials: what a finished one has was written before it was finished.
                _add_parts(connection, found, wanted)
            else:
                self._require_study(connection, study_id)
        return list(found.values())

    def _require_study(self, connection: Connection, study_id: int) -> None:
        there = select(models.StudyModel.study_id).where(models.StudyModel.study_id == study_id)
        if connection.execute(there).first() is None:
            raise KeyError(models.NOT_FOUND_MSG)


def trial_rows(wanted: ColumnElement[bool]) -> Select[Any]:
    """The wanted rows of Optuna's table, by id, each value as the database has it."""
    c = TRIALS.c
    stored = (c.state, c.datetime_start, c.datetime_complete)
    raw = (type_coerce(each, String()).label(each.name) for each in stored)
    return select(c.trial_id, c.number, *raw).where(wanted).order_by(c.trial_id)


def bare_trials(connection: Connection, wanted: ColumnElement[bool]) -> Iterator[FrozenTrial]:
    """The wanted trials with their numbers, states and times, by id; nothing else of them."""
    for row in read_rows(ROWS, TRIALS, connection.execute(trial_rows(wanted)).all()):
        yield FrozenTrial(
            number=row.number,
            state=TrialState[row.state],
            value=None,
            values=None,
            datetime_start=_local(row.datetime_start),
            datetime_complete=_local(row.datetime_complete),
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
            trial_id=row.trial_id,
        )


def _add_parts(
    connection: Connection, found: dict[int, FrozenTrial], wanted: ColumnElement[bool]
) -> None:
    def rows(table: Table, *columns: str) -> Iterator[tuple[FrozenTrial, Sequence[Any]]]:
        return part_rows(connection, found, wanted, table, *columns)

    for trial, (_, name, value, text) in rows(
        PARAMS, "param_name", "param_value", "distribution_json"
    ):
        distribution = _distribution(text)
        trial.params[name] = distribution.to_external_repr(value)
        trial.distributions[name] = distribution
    for trial, (_, key, text) in rows(TRIAL_USER, "key", "value_json"):
        trial.user_attrs[key] = json.loads(text)
    for trial, (_, key, text) in rows(TRIAL_SYSTEM, "key", "value_json"):
        trial.system_attrs[key] = json.loads(text)
    for trial, (_, step, value, kind) in rows(
        INTERMEDIATE, "step", "intermediate_value", "intermediate_value_type"
    ):
        stored = models.TrialIntermediateValueModel.stored_repr_to_intermediate_value(value, kind)
        trial.intermediate_values[step] = stored
    add_values(rows(VALUES, "objective", "value", "value_type"))


def add_values(rows: Iterable[tuple[FrozenTrial, Sequence[Any]]]) -> None:
    """Give trials the values of rows `(trial id, objective, value, kind of value)`."""
    values: dict[int, dict[int, float]] = {}
    for trial, (trial_id, objective, value, kind) in rows:
        by_objective = values.setdefault(trial_id, {})
        by_objective[objective] = models.TrialValueModel.stored_repr_to_value(value, kind)
        trial.values = [by_objective[each] for each in sorted(by_objective)]


def part_rows(
    connection: Connection,
    found: Mapping[int, FrozenTrial],
    wanted: ColumnElement[bool],
    table: Table,
    *columns: str,
    only: ColumnElement[bool] | None = None,
) -> Iterator[tuple[FrozenTrial, Sequence[Any]]]:
    """Rows of `table` that belong to the trials `found`, which are those `wanted`: trial and
    `(trial id, *columns)`.
    """
    # A few trials are named; of many, the database finds them by itself.
    ids = list(found) if len(found) <= FEW else select(TRIALS.c.trial_id).where(wanted)
    query = select(table.c.trial_id, *(table.c[name] for name in columns)).where(
        table.c.trial_id.in_(ids)
    )
    if only is not None:
        query = query.where(only)
    # In the order in which they were written, as Optuna has parameters.
    for row in connection.execute(query.order_by(*table.primary_key)):
        trial = found.get(row[0])
        if trial is not None:  # else it was made since
            yield trial, row


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


def _local(stored: datetime | None) -> datetime | None:
    """Optuna stores UTC without saying so, and shows local time without saying so."""
    return (
        stored.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) if stored is not None else None
    )


@contextmanager
def _as_optuna_fails() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise StorageInternalError(FAILED) from error
