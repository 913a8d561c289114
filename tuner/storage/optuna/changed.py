"""What other programs changed of our trials in Optuna's tables:
found by our own record, and put right again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.storages._rdb import models
from optuna.trial import TrialState
from sqlalchemy import Connection, Table, select, update

from tuner.config import Value
from tuner.files.plain import UNREADABLE, excerpt
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.private import PARAMS, TRIAL_USER, TRIALS, VALUES, as_stored
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims

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


@dataclass(frozen=True, slots=True)
class _Stored:
    """A trial as Optuna's tables have it, damaged or not."""

    number: Any
    state: Any
    values: dict[Any, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def changed_trials(connection: Connection) -> Iterator[Changed]:
    """The trials with a result that Optuna was told, and has otherwise now."""
    c = claims.c
    query = select(c.study_id, c.trial_id, c.trial_number, c.result).where(
        (c.state == "finished") & c.told.is_(True)
    )
    by_study: dict[int, list[Any]] = {}
    for row in connection.execute(query.order_by(c.study_id, c.trial_number)):
        by_study.setdefault(row.study_id, []).append(row)
    for study_id, rows in by_study.items():
        found = _stored(connection, study_id)
        for row in rows:
            try:
                result = TrialResult.from_json(row.result)
            except UNREADABLE:  # the damage is named by who looks for that; this is what differs
                continue
            trial = found.get(row.trial_id)
            if trial is not None and (what := _differences(trial, row.trial_number, result)):
                yield Changed(
                    study_id=study_id,
                    trial_id=row.trial_id,
                    number=row.trial_number,
                    what=" and ".join(what),
                    result=result,
                )


def restore(connection: Connection, changed: Changed) -> None:
    """Write the recorded result to Optuna's tables."""
    mine = TRIALS.c.trial_id == changed.trial_id
    query = select(TRIALS.c.study_id, TRIALS.c.number, as_stored(TRIALS.c.state)).where(mine)
    study_id, number, state = connection.execute(query.with_for_update()).one()
    optuna_rows.write_result(
        connection, changed.trial_id, changed.result, found=TrialState.__members__.get(state)
    )
    if changed.result.params is not None:
        optuna_rows.correct_parameters(connection, changed.trial_id, changed.result.params)
    same = (TRIALS.c.study_id == study_id) & (TRIALS.c.number == changed.number)
    if number != changed.number and connection.execute(select(TRIALS).where(same)).first() is None:
        connection.execute(update(TRIALS).where(mine).values(number=changed.number))


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
        trial.params[name] = optuna_rows.external(value, distribution)
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


def _differences(trial: _Stored, number: int, result: TrialResult) -> list[str]:
    what = []
    if isinstance(number, int) and trial.number != number:
        what.append(f"its number is {_shown(trial.number)}, recorded {number}")
    if trial.state != result.state.name:
        what.append(f"its state is {_shown(trial.state)}, recorded {result.state.name}")
    values = tuple(trial.values[each] for each in sorted(trial.values))
    if values != tuple(result.values or ()):
        what.append(f"its values are {_listed(values)}, recorded {_listed(result.values)}")
    for name, value in (result.params or {}).items():
        there = trial.params.get(name)
        if there is None or not _same(there, value):
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


def _same(there: Any, recorded: Value) -> bool:
    if isinstance(there, int | float) and isinstance(recorded, int | float):
        return math.isclose(there, recorded, rel_tol=_ROUNDING)
    return bool(there == recorded)


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
