"""A trial's rows in Optuna's tables: taken or created, given its parameters, put back, told its result.

Optuna's own calls make a transaction of each attribute. These statements run in the caller's transaction, so that a
trial and its claim change together or not at all.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages._rdb.models import (
    StudyModel,
    TrialModel,
    TrialParamModel,
    TrialSystemAttributeModel,
    TrialUserAttributeModel,
)
from optuna.trial import TrialState
from sqlalchemy import Connection, CursorResult, Select, Table, delete, func, insert, select, update

from tuner.storage.engine import Database
from tuner.storage.records import TrialResult

_studies: Table = StudyModel.__table__
_trials: Table = TrialModel.__table__
_parameters: Table = TrialParamModel.__table__
_attributes: Table = TrialUserAttributeModel.__table__
_system_attributes: Table = TrialSystemAttributeModel.__table__


def take_waiting(connection: Connection, study_id: int) -> tuple[int, int] | None:
    """Let the first waiting trial run: its id and number; None where none waits."""
    waiting = (_trials.c.study_id == study_id) & (_trials.c.state == TrialState.WAITING)
    query = select(_trials.c.trial_id, _trials.c.number).where(waiting).order_by(_trials.c.number).limit(10)
    for trial_id, number in connection.execute(query).all():
        taken = connection.execute(
            update(_trials)
            .where((_trials.c.trial_id == trial_id) & (_trials.c.state == TrialState.WAITING))
            .values(state=TrialState.RUNNING, datetime_start=_utc_now())
        )
        if taken.rowcount == 1:  # else somebody took it through Optuna itself
            return int(trial_id), int(number)
    return None


def create_running(connection: Connection, study_id: int) -> tuple[int, int]:
    """A new trial's id and number. As Optuna creates one: numbered while the study's row is locked."""
    connection.execute(select(_studies.c.study_id).where(_studies.c.study_id == study_id).with_for_update())
    existing = select(func.count()).select_from(_trials).where(_trials.c.study_id == study_id)
    number = int(connection.execute(existing).scalar_one())
    inserted = connection.execute(
        insert(_trials).values(study_id=study_id, number=number, state=TrialState.RUNNING, datetime_start=_utc_now())
    )
    return primary_key(inserted), number


def write_parameters(
    connection: Connection, trial_id: int, parameters: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> None:
    """Record the values of a trial that it does not have yet, all in one statement."""
    known = select(_parameters.c.param_name).where(_parameters.c.trial_id == trial_id)
    there = set(connection.execute(known).scalars())
    rows = [
        {
            "trial_id": trial_id,
            "param_name": name,
            "param_value": distributions[name].to_internal_repr(value),
            "distribution_json": distribution_to_json(distributions[name]),
        }
        for name, value in parameters.items()
        if name not in there
    ]
    if rows:
        connection.execute(insert(_parameters), rows)


def put_back(connection: Connection, trial_id: int) -> None:
    """Let a running trial wait again, with its number and parameters."""
    running = (_trials.c.trial_id == trial_id) & (_trials.c.state == TrialState.RUNNING)
    connection.execute(update(_trials).where(running).values(state=TrialState.WAITING))


def put_back_all_but(connection: Connection, study_id: int, held: Select[Any]) -> int:
    """Let all running trials of the study wait again whose ids `held` does not select. Returns how many."""
    strays = (
        (_trials.c.study_id == study_id) & (_trials.c.state == TrialState.RUNNING) & _trials.c.trial_id.not_in(held)
    )
    return connection.execute(update(_trials).where(strays).values(state=TrialState.WAITING)).rowcount


def tell(database: Database, trial_id: int, result: TrialResult) -> None:
    """Give a trial its result, attributes first and the state after; one that has a result keeps it.

    Safe to run by anyone, any number of times, also after a crash in its middle.
    """
    with database.engine.begin() as connection:
        query = select(_trials.c.state).where(_trials.c.trial_id == trial_id).with_for_update()
        if connection.execute(query).scalar_one().is_finished():
            return
        constraints = {f"constraints:{key}": value for key, value in result.constraints.items()}
        _write(connection, _attributes, trial_id, result.attributes)
        _write(connection, _system_attributes, trial_id, constraints)  # where set_constraint puts them
    values = list(result.values) if result.values is not None else None
    with contextlib.suppress(UpdateFinishedTrialError):  # somebody else was faster
        database.optuna.set_trial_state_values(trial_id, state=result.state, values=values)


def write_all_attributes(
    connection: Connection, trials: Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    """Give trials that have none yet their attributes, `{trial id: (of the user, of the system)}`, a table a statement.

    Optuna writes them one by one, which for a study of a thousand trials takes half a minute.
    """
    for index, table in enumerate((_attributes, _system_attributes)):
        rows = [
            {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
            for trial_id, both in trials.items()
            for key, value in both[index].items()
        ]
        if rows:
            connection.execute(insert(table), rows)


def primary_key(inserted: CursorResult[Any]) -> int:
    """Of the one row that was inserted."""
    key = inserted.inserted_primary_key
    assert key is not None, "an insert has a primary key"
    return int(key[0])


def _write(connection: Connection, table: Table, trial_id: int, attributes: Mapping[str, Any]) -> None:
    """Set a trial's attributes, all in one statement: one by one they would cost a transaction each."""
    if not attributes:
        return
    connection.execute(delete(table).where((table.c.trial_id == trial_id) & table.c.key.in_(list(attributes))))
    rows = [{"trial_id": trial_id, "key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
    connection.execute(insert(table), rows)


def _utc_now() -> datetime:
    """As Optuna stores times: UTC, without saying so."""
    return datetime.now(UTC).replace(tzinfo=None)
