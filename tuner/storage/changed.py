"""What other programs changed of our trials in Optuna's tables:
found by our own record, and put right again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import TrialState
from sqlalchemy import Connection, Table, insert, select, update

from tuner.config import StopReason, Value
from tuner.errors import StorageError
from tuner.files.plain import UNREADABLE, excerpt
from tuner.spec.definition import stored_definition
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.own_trials import ran_with
from tuner.storage.optuna.private import PARAMS, TRIAL_USER, TRIALS, VALUES, as_stored, models
from tuner.storage.records import ATTEMPTS, DamagedRowError, TrialResult, read_rows
from tuner.storage.schema import TRIAL, studies, work

SHOWN = 3
"""Names of attributes in one line."""
_ROUNDING = 1e-9
"""Of a parameter on its way through a database, as a share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A trial of which Optuna's row is not what was recorded."""

    study_id: int
    trial_id: int
    number: int
    what: str
    """What is other, in words."""
    result: TrialResult
    params: Mapping[str, Value]
    distributions: Mapping[str, BaseDistribution]


@dataclass(frozen=True, slots=True)
class _Stored:
    """A trial as Optuna's tables have it, damaged or not."""

    number: Any
    state: Any
    values: dict[Any, Any] = field(default_factory=dict)
    params: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """By name, what the row has, and its distribution in JSON."""
    attributes: dict[str, Any] = field(default_factory=dict)


def changed_trials(connection: Connection) -> Iterator[Changed]:
    """The trials with a result that Optuna was told, and has otherwise now, or no more. What cannot
    be read is passed over: others name the damage.
    """
    c = work.c
    told = (c.kind == TRIAL) & (c.state == "finished") & c.told.is_(True)
    there = optuna_rows.has_study(studies.c.study_id)
    known = select(studies.c.study_id, studies.c.definition).where(there)
    for study_id, text in connection.execute(known.order_by(studies.c.study_id)).all():
        try:
            space = stored_definition("", text).space
        except StorageError:
            continue
        own = space.stored()
        found = _stored(connection, study_id)
        query = select(work).where(told & (c.study_id == study_id)).order_by(c.trial_number)
        for row in connection.execute(query).all():
            try:
                (attempt,) = read_rows(ATTEMPTS, work, [row])
                result = attempt.result
                assert result is not None, "a finished attempt has one"
                failed = result.recorded.stopped_by == StopReason.ERROR  # it need not have had any
                params = {} if failed else ran_with(attempt, result, space)
            except DamagedRowError:
                continue
            trial = found.get(row.trial_id)
            what = ["its row is gone"]
            if trial is not None:
                what = _differences(trial, row.trial_number, result, params, own)
            if what:
                yield Changed(
                    study_id=study_id,
                    trial_id=row.trial_id,
                    number=row.trial_number,
                    what=" and ".join(what),
                    result=result,
                    params=params,
                    distributions=own,
                )


def restore(connection: Connection, changed: Changed) -> bool:
    """Write the recorded result to Optuna's tables; False where the trial's row is gone, and
    another trial has its number.
    """
    c = TRIALS.c
    mine = c.trial_id == changed.trial_id
    query = select(c.number, as_stored(c.state)).where(mine).with_for_update()
    row = connection.execute(query).first()
    same = (c.study_id == changed.study_id) & (c.number == changed.number)
    free = connection.execute(select(c.trial_id).where(same)).first() is None
    if row is None:
        if not free:
            return False
        made = {"trial_id": changed.trial_id, "study_id": changed.study_id}
        made |= {"number": changed.number, "state": TrialState.RUNNING}
        connection.execute(insert(TRIALS).values(made))
    elif row.number != changed.number and free:
        connection.execute(update(TRIALS).where(mine).values(number=changed.number))
    state = TrialState.__members__.get(row[1]) if row is not None else TrialState.RUNNING
    optuna_rows.write_result(connection, changed.trial_id, changed.result, found=state)
    if changed.params:
        own = changed.distributions
        optuna_rows.set_parameters(connection, changed.trial_id, changed.params, own)
    return True


def _stored(connection: Connection, study_id: int) -> dict[int, _Stored]:
    """The trials of a study by their ids, each value as the database has it: whatever others wrote
    there is to be compared.
    """
    c = TRIALS.c
    mine = c.study_id == study_id
    query = select(c.trial_id, as_stored(c.number), as_stored(c.state)).where(mine)
    found = {row[0]: _Stored(number=row[1], state=row[2]) for row in connection.execute(query)}

    def rows(table: Table, *columns: str) -> Iterator[tuple[_Stored, Sequence[Any]]]:
        raw = [as_stored(table.c[name]) for name in columns]
        ids = table.c.trial_id.in_(select(c.trial_id).where(mine))
        for row in connection.execute(select(table.c.trial_id, *raw).where(ids)):
            if row[0] in found:  # else it was made since
                yield found[row[0]], row[1:]

    for trial, (name, value, distribution) in rows(
        PARAMS, "param_name", "param_value", "distribution_json"
    ):
        trial.params[name] = value, distribution
    for trial, (key, text) in rows(TRIAL_USER, "key", "value_json"):
        trial.attributes[key] = text
    for trial, (objective, value, kind) in rows(VALUES, "objective", "value", "value_type"):
        known = models.TrialValueModel.TrialValueType.__members__.get(kind)
        trial.values[objective] = (
            f"{value} ({kind})"
            if known is None
            else models.TrialValueModel.stored_repr_to_value(value, known)
        )
    return found


def _differences(
    trial: _Stored,
    number: int,
    result: TrialResult,
    params: Mapping[str, Value],
    own: Mapping[str, BaseDistribution],
) -> list[str]:
    what = []
    if trial.number != number:
        what.append(f"its number is {_shown(trial.number)}, recorded {number}")
    if trial.state != result.state.name:
        what.append(f"its state is {_shown(trial.state)}, recorded {result.state.name}")
    values = tuple(trial.values[each] for each in sorted(trial.values))
    if values != tuple(result.values or ()):
        what.append(f"its values are {_listed(values)}, recorded {_listed(result.values)}")
    for name, value in params.items():
        row = trial.params.get(name)
        if row is None or not _same(row, optuna_rows.as_row(value, own[name])):
            there = None if row is None else optuna_rows.external(*row)
            what.append(f"its {name} is {_shown(there)}, recorded {value}")
    others = [
        key
        for key, value in result.recorded.to_flat().items()
        if not _says(trial.attributes.get(key), value)
    ]
    if others:
        more = " and others" if len(others) > SHOWN else ""
        what.append(f"its attributes {', '.join(others[:SHOWN])}{more} are other")
    return what


def _same(there: tuple[Any, Any], recorded: tuple[float, str]) -> bool:
    value, distribution = there
    return (
        isinstance(value, int | float)
        and math.isclose(value, recorded[0], rel_tol=_ROUNDING)
        and _says(distribution, json.loads(recorded[1]))
    )


def _shown(value: Any) -> str:
    """Whatever it is that somebody stored."""
    return excerpt(str(value))


def _listed(values: Sequence[Any] | None) -> str:
    if not values:
        return "none"
    return ", ".join(f"{v:g}" if isinstance(v, int | float) else _shown(v) for v in values)


def _says(text: str | None, value: Any) -> bool:
    """Whether the stored `text` is that of `value`.
    Compared as texts: NaN is not equal to itself.
    """
    expected = json.dumps(value)
    try:
        return text == expected or (text is not None and json.dumps(json.loads(text)) == expected)
    except UNREADABLE:
        return False
