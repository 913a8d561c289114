"""A trial's rows in Optuna's tables: taken or created,
given its parameters, put back, told its result.

Optuna's own calls make a transaction of each attribute. These statements run in the caller's
transaction, so that a trial and its claim change together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.trial import TrialState
from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Join,
    Label,
    Select,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from tuner.config import Value
from tuner.files.plain import UNREADABLE, excerpt, read_json
from tuner.spec.ranges import held
from tuner.storage.optuna.private import (
    PARAMS,
    PREFIX,
    STUDIES,
    TRIAL_SYSTEM,
    TRIAL_USER,
    TRIALS,
    VALUES,
    as_stored,
    distribution_of,
    models,
)
from tuner.storage.records import ORIGINS, TrialResult

ENQUEUED = "fixed_params"
"""The system attribute in which Optuna keeps the configuration of a trial that was enqueued."""


def has_study(study_id: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that Optuna has the study of that number."""
    return select(STUDIES.c.study_id).where(STUDIES.c.study_id == study_id).exists()


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A trial that waits in Optuna's queue, and whatever it is to be run with."""

    trial_id: int
    number: int
    params: Any


def waiting(connection: Connection, study_id: int, known: Select[Any]) -> list[Enqueued]:
    """The trials that wait in Optuna's queue, but for those that are `known`, by their numbers."""
    c = TRIALS.c
    mine = (c.study_id == study_id) & (c.state == TrialState.WAITING) & c.trial_id.not_in(known)
    rows = connection.execute(select(c.trial_id, c.number).where(mine).order_by(c.number)).all()
    if not rows:
        return []
    p, a, asked = PARAMS.c, TRIAL_SYSTEM.c, select(c.trial_id).where(mine)
    fixed = select(a.trial_id, a.value_json).where(a.trial_id.in_(asked) & (a.key == ENQUEUED))
    enqueued = {row.trial_id: _plain(row.value_json) for row in connection.execute(fixed)}
    query = select(p.trial_id, p.param_name, p.param_value, p.distribution_json)
    made: dict[int, dict[str, Any]] = {}
    for trial_id, name, value, text in connection.execute(query.where(p.trial_id.in_(asked))):
        made.setdefault(trial_id, {})[name] = external(value, text)
    found = []
    for trial_id, number in rows:
        params = enqueued.get(trial_id, {})
        if isinstance(params, dict):
            params = params | made.get(trial_id, {})
        found.append(Enqueued(trial_id, number, params))
    return found


def _plain(text: str) -> Any:
    """What somebody enqueued; a text where that is no JSON."""
    try:
        return read_json(text)
    except UNREADABLE:
        return excerpt(text)


def external(stored: float, distribution: str) -> Value:
    """The value that a parameter's row stands for; what the row holds, where its distribution is
    not one of Optuna's.
    """
    try:
        value: Value = distribution_of(distribution).to_external_repr(stored)
    except UNREADABLE:
        return stored
    return value


def create_waiting(
    connection: Connection,
    study_id: int,
    number: int,
    held: Mapping[str, Value],
    notes: Mapping[str, Any],
) -> int:
    """A new trial that waits, to be run with values as Optuna's tables have them; its id. Its
    study's row is locked meanwhile, by the caller.
    """
    row = {"study_id": study_id, "number": number, "state": TrialState.WAITING}
    trial_id = primary_key(connection.execute(insert(TRIALS).values(row)))
    _write(connection, TRIAL_SYSTEM, trial_id, {ENQUEUED: dict(held)})
    note(connection, trial_id, notes)
    return trial_id


def run(connection: Connection, study_id: int, trial_id: int, number: int) -> None:
    """Let a trial run that waits, in a new row where somebody deleted its own."""
    running = {"state": TrialState.RUNNING, "datetime_start": _utc_now()}
    mine = TRIALS.c.trial_id == trial_id
    if not connection.execute(update(TRIALS).where(mine).values(running)).rowcount:
        row = {"trial_id": trial_id, "study_id": study_id, "number": number}
        connection.execute(insert(TRIALS).values(row | running))


def beside_study(table: Table, study_id: ColumnElement[int]) -> Join:
    """The rows of a table together with Optuna's of the studies that they are of."""
    return table.join(STUDIES, STUDIES.c.study_id == study_id)


def numbers(study_id: int) -> list[Label[Any]]:
    """The last number that Optuna has, and whether a trial waits there, as columns of any
    statement: `last_number`, `waiting`.
    """
    mine = TRIALS.c.study_id == study_id
    waits = select(TRIALS.c.trial_id).where(mine & (TRIALS.c.state == TrialState.WAITING))
    return [
        select(func.max(TRIALS.c.number)).where(mine).scalar_subquery().label("last_number"),
        waits.limit(1).scalar_subquery().label("waiting"),
    ]


def create_running(connection: Connection, study_id: int, number: int) -> int:
    """A new trial's id. Its study's row is locked meanwhile, by the caller."""
    row = {"study_id": study_id, "number": number, "state": TrialState.RUNNING}
    inserted = connection.execute(insert(TRIALS).values(row | {"datetime_start": _utc_now()}))
    return primary_key(inserted)


def set_parameters(
    connection: Connection,
    trial_id: int,
    parameters: Mapping[str, Value],
    distributions: Mapping[str, BaseDistribution],
) -> None:
    """Give a trial these parameters, whatever it had."""
    connection.execute(delete(PARAMS).where(PARAMS.c.trial_id == trial_id))
    rows = []
    for name, value in parameters.items():
        stored, text = as_row(value, distributions[name])
        row = {"trial_id": trial_id, "param_name": name, "param_value": stored}
        rows.append(row | {"distribution_json": text})
    if rows:
        connection.execute(insert(PARAMS), rows)


def as_row(value: Value, distribution: BaseDistribution) -> tuple[float, str]:
    """What a parameter's row has for a true value: the value as it is stored, and of what."""
    stored = distribution.to_internal_repr(held(value, distribution))
    return float(stored), distribution_to_json(distribution)


def note(connection: Connection, trial_id: int, notes: Mapping[str, Any]) -> None:
    """Where Optuna has it: where a configuration comes from with the user's attributes, what a
    genetic sampler noted with the system's.
    """
    _write(connection, TRIAL_USER, trial_id, {k: v for k, v in notes.items() if k in ORIGINS})
    _write(connection, TRIAL_SYSTEM, trial_id, {k: v for k, v in notes.items() if k not in ORIGINS})


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
    query = select(as_stored(TRIALS.c.state)).where(TRIALS.c.trial_id == trial_id)
    found = connection.execute(query.with_for_update()).scalar_one_or_none()
    if found is not None:
        write_result(connection, trial_id, result, found=TrialState.__members__.get(found))


def write_result(
    connection: Connection, trial_id: int, result: TrialResult, *, found: TrialState | None
) -> None:
    """Attributes, values and state of a trial whose row is locked and is in the state `found`; None
    where that is none.
    """
    constraints = {f"{PREFIX}{key}": value for key, value in result.constraints.items()}
    _write(connection, TRIAL_USER, trial_id, result.recorded.to_flat())
    _write(connection, TRIAL_SYSTEM, trial_id, constraints)  # where set_constraint puts them
    mine = VALUES.c.trial_id == trial_id
    query = select(VALUES.c.value, VALUES.c.value_type).where(mine).order_by(VALUES.c.objective)
    there: tuple[float, ...] | None
    try:
        there = tuple(
            models.TrialValueModel.stored_repr_to_value(*row)
            for row in connection.execute(query).all()
        )
    except UNREADABLE:
        there = None
    told = tuple(result.values or ())
    if there != told:
        if there != ():
            connection.execute(delete(VALUES).where(mine))
        rows = [
            {"trial_id": trial_id, "objective": i, "value": stored, "value_type": kind}
            for i, (stored, kind) in enumerate(
                map(models.TrialValueModel.value_to_stored_repr, told)
            )
        ]
        if rows:
            connection.execute(insert(VALUES), rows)
    if found != result.state or there != told:
        ended = {"state": result.state, "datetime_complete": _utc_now()}
        connection.execute(update(TRIALS).where(TRIALS.c.trial_id == trial_id).values(ended))


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
