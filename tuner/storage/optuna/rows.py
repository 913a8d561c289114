"""A trial's rows in Optuna's tables: taken or created,
given its parameters, put back, told its result.

Optuna's own calls make a transaction of each attribute. These statements run in the caller's
transaction, so that a trial and its claim change together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.storages._rdb.models import (
    TrialValueModel,
)
from optuna.trial import TrialState
from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Join,
    Label,
    Row,
    Select,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from tuner.config import Value
from tuner.files.plain import UNREADABLE
from tuner.storage.optuna.private import PARAMS, STUDIES, TRIAL_SYSTEM, TRIAL_USER, TRIALS, VALUES
from tuner.storage.records import TrialResult

ENQUEUED = "fixed_params"
"""The system attribute in which Optuna keeps the configuration of a trial that was enqueued."""


def has_study(study_id: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that Optuna has the study of that number."""
    return select(STUDIES.c.study_id).where(STUDIES.c.study_id == study_id).exists()


def take_waiting(connection: Connection, study_id: int) -> tuple[int, int] | None:
    """Let the first waiting trial run: its id and number; None where none waits."""
    waiting = (TRIALS.c.study_id == study_id) & (TRIALS.c.state == TrialState.WAITING)
    query = (
        select(TRIALS.c.trial_id, TRIALS.c.number)
        .where(waiting)
        .order_by(TRIALS.c.number)
        .limit(10)
    )
    for trial_id, number in connection.execute(query).all():
        taken = connection.execute(
            update(TRIALS)
            .where((TRIALS.c.trial_id == trial_id) & (TRIALS.c.state == TrialState.WAITING))
            .values(state=TrialState.RUNNING, datetime_start=_utc_now())
        )
        if taken.rowcount == 1:  # else somebody took it through Optuna itself
            return int(trial_id), int(number)
    return None


def beside_study(table: Table, study_id: ColumnElement[int]) -> Join:
    """The rows of a table together with Optuna's of the studies that they are of."""
    return table.join(STUDIES, STUDIES.c.study_id == study_id)


def numbers(study_id: int) -> list[Label[Any]]:
    """What `create_running` has to know of the trials there, and whether one waits, as columns of
    any statement: `last_number`, `waiting`.
    """
    mine = TRIALS.c.study_id == study_id
    waits = select(TRIALS.c.trial_id).where(mine & (TRIALS.c.state == TrialState.WAITING))
    return [
        select(func.max(TRIALS.c.number)).where(mine).scalar_subquery().label("last_number"),
        waits.limit(1).scalar_subquery().label("waiting"),
    ]


def create_running(connection: Connection, study_id: int, seen: Row[Any]) -> tuple[int, int]:
    """A new trial's id and number, by the `numbers` that were seen.

    As Optuna creates one: numbered while the study's row is locked, which is up to the caller. But
    no number is given twice where somebody has deleted a row.
    """
    number = 0 if seen.last_number is None else int(seen.last_number) + 1
    inserted = connection.execute(
        insert(TRIALS).values(
            study_id=study_id, number=number, state=TrialState.RUNNING, datetime_start=_utc_now()
        )
    )
    return primary_key(inserted), number


def write_parameters(
    connection: Connection,
    trial_id: int,
    parameters: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> None:
    """Record the values of a trial that it does not have yet, all in one statement."""
    known = select(PARAMS.c.param_name).where(PARAMS.c.trial_id == trial_id)
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
        connection.execute(insert(PARAMS), rows)


def correct_parameters(
    connection: Connection, trial_id: int, parameters: Mapping[str, Value]
) -> None:
    """Give the parameters that a trial has their values again. Of one that it lacks the range is
    not known here.
    """
    mine = PARAMS.c.trial_id == trial_id
    for name, value in parameters.items():
        this = mine & (PARAMS.c.param_name == name)
        query = select(PARAMS.c.distribution_json).where(this)
        text = connection.execute(query).scalar_one_or_none()
        if text is not None and (stored := _internal(value, text)) is not None:
            connection.execute(update(PARAMS).where(this).values(param_value=stored))


def external(stored: float, distribution: str) -> Value:
    """The value that a parameter's row stands for; what the row holds, where its distribution is
    not one of Optuna's.
    """
    try:
        value: Value = json_to_distribution(distribution).to_external_repr(stored)
    except UNREADABLE:
        return stored
    return value


def _internal(value: Value, distribution: str) -> float | None:
    """How a row holds a value; None where its distribution is not one of Optuna's, or lacks it."""
    try:
        return float(json_to_distribution(distribution).to_internal_repr(value))
    except UNREADABLE:
        return value if isinstance(value, int | float) else None


def put_back(connection: Connection, trial_id: int) -> None:
    """Let a trial of ours wait again, with its number and parameters, whatever others told Optuna
    of it meanwhile.
    """
    unlike = (TRIALS.c.trial_id == trial_id) & (TRIALS.c.state != TrialState.WAITING)
    waiting = {"state": TrialState.WAITING, "datetime_complete": None}
    if connection.execute(update(TRIALS).where(unlike).values(waiting)).rowcount:
        connection.execute(delete(VALUES).where(VALUES.c.trial_id == trial_id))


def put_back_strays(
    connection: Connection, study_id: int, held: Select[Any], ours: Select[Any]
) -> int:
    """Let running trials wait again whose ids `held` does not select; returns how many.

    Only those that `ours` selects, or that waited in the study's queue before somebody else took
    them from there. Any other is the trial of another program, which may still be at it.
    """
    return connection.execute(
        update(TRIALS).where(strays(study_id, held, ours)).values(state=TrialState.WAITING)
    ).rowcount


def strays(study_id: int | None, held: Select[Any], ours: Select[Any]) -> ColumnElement[bool]:
    """The condition for such trials, of one study or (None) of any."""
    queued = select(TRIAL_SYSTEM.c.trial_id).where(TRIAL_SYSTEM.c.key == ENQUEUED)
    running = (TRIALS.c.state == TrialState.RUNNING) & TRIALS.c.trial_id.not_in(held)
    of_ours = TRIALS.c.trial_id.in_(queued) | TRIALS.c.trial_id.in_(ours)
    return (
        running & of_ours
        if study_id is None
        else (TRIALS.c.study_id == study_id) & running & of_ours
    )


def tell(connection: Connection, trial_id: int, result: TrialResult) -> None:
    """Give a trial its result, whatever others told Optuna of it before; a trial whose row is gone
    stays so. Safe to run by anyone, any number of times.
    """
    query = select(TRIALS.c.state).where(TRIALS.c.trial_id == trial_id).with_for_update()
    found = connection.execute(query).scalar_one_or_none()
    if found is not None:
        write_result(connection, trial_id, result, found=found)


def write_result(
    connection: Connection, trial_id: int, result: TrialResult, *, found: TrialState | None
) -> None:
    """Attributes, values and state of a trial whose row is locked and is in the state `found`; None
    where that is none.
    """
    constraints = {f"constraints:{key}": value for key, value in result.constraints.items()}
    _write(connection, TRIAL_USER, trial_id, result.recorded.to_flat())
    _write(connection, TRIAL_SYSTEM, trial_id, constraints)  # where set_constraint puts them
    mine = VALUES.c.trial_id == trial_id
    query = select(VALUES.c.value, VALUES.c.value_type).where(mine).order_by(VALUES.c.objective)
    there: tuple[float, ...] | None
    try:
        there = tuple(
            TrialValueModel.stored_repr_to_value(*row) for row in connection.execute(query).all()
        )
    except UNREADABLE:
        there = None
    told = tuple(result.values or ())
    if there != told:
        if there != ():
            connection.execute(delete(VALUES).where(mine))
        rows = [
            {"trial_id": trial_id, "objective": i, "value": stored, "value_type": kind}
            for i, (stored, kind) in enumerate(map(TrialValueModel.value_to_stored_repr, told))
        ]
        if rows:
            connection.execute(insert(VALUES), rows)
    if found != result.state or there != told:
        ended = {"state": result.state, "datetime_complete": _utc_now()}
        connection.execute(update(TRIALS).where(TRIALS.c.trial_id == trial_id).values(ended))


def write_all_attributes(
    connection: Connection, trials: Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    """Give trials that have none yet their attributes, `{trial id: (of the user, of the system)}`,
    a table a statement.

    Optuna writes them one by one, which for a study of a thousand trials takes half a minute.
    """
    for index, table in enumerate((TRIAL_USER, TRIAL_SYSTEM)):
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


def _write(
    connection: Connection, table: Table, trial_id: int, attributes: Mapping[str, Any]
) -> None:
    """Set a trial's attributes, all in one statement:
    one by one they would cost a transaction each.
    """
    if not attributes:
        return
    connection.execute(
        delete(table).where((table.c.trial_id == trial_id) & table.c.key.in_(list(attributes)))
    )
    rows = [
        {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
        for key, value in attributes.items()
    ]
    connection.execute(insert(table), rows)


def _utc_now() -> datetime:
    """As Optuna stores times: UTC, without saying so."""
    return datetime.now(UTC).replace(tzinfo=None)
