"""What other programs changed of our trials in Optuna's tables:
found by our own record, and put right again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.storages._rdb import models
from optuna.trial import FrozenTrial
from sqlalchemy import Connection, Table, select

from tuner.config import Value
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.private import trial_id_of
from tuner.storage.optuna.trials import add_values, bare_trials, part_rows
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims

SHOWN = 3
"""Names of attributes in one line."""
_ROUNDING = 1e-9
"""Of a parameter on its way through a database, as a share of it."""
_trials: Table = models.TrialModel.__table__
_values: Table = models.TrialValueModel.__table__
_params: Table = models.TrialParamModel.__table__
_attributes: Table = models.TrialUserAttributeModel.__table__


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A trial of which Optuna's row is not what was recorded."""

    study_id: int
    trial_id: int
    number: int
    what: str
    """What is other, in words."""
    result: TrialResult


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
        wanted = _trials.c.study_id == study_id
        found = {trial_id_of(trial): trial for trial in bare_trials(connection, wanted)}
        _read_parts(connection, found, study_id)
        for row in rows:
            result = TrialResult.from_json(row.result)
            trial = found.get(row.trial_id)
            if trial is not None and (what := _differences(trial, result)):
                yield Changed(
                    study_id=study_id,
                    trial_id=row.trial_id,
                    number=row.trial_number,
                    what=" and ".join(what),
                    result=result,
                )


def restore(connection: Connection, changed: Changed) -> None:
    """Write the recorded result to Optuna's tables."""
    query = select(_trials.c.state).where(_trials.c.trial_id == changed.trial_id).with_for_update()
    optuna_rows.write_result(
        connection, changed.trial_id, changed.result, found=connection.execute(query).scalar_one()
    )
    if changed.result.params is not None:
        optuna_rows.correct_parameters(connection, changed.trial_id, changed.result.params)


def _read_parts(connection: Connection, found: Mapping[int, FrozenTrial], study_id: int) -> None:
    """Values, and parameters and attributes in the form in which they are stored."""
    wanted = _trials.c.study_id == study_id

    def rows(table: Table, *columns: str) -> Iterator[tuple[FrozenTrial, Sequence[Any]]]:
        return part_rows(connection, found, wanted, table, *columns)

    columns = "param_name", "param_value", "distribution_json"
    for trial, (_, name, value, distribution) in rows(_params, *columns):
        trial.params[name] = optuna_rows.external(value, distribution)
    for trial, (_, key, text) in rows(_attributes, "key", "value_json"):
        trial.user_attrs[key] = text
    add_values(rows(_values, "objective", "value", "value_type"))


def _differences(trial: FrozenTrial, result: TrialResult) -> list[str]:
    what = []
    if trial.state != result.state:
        what.append(f"its state is {trial.state.name}, recorded {result.state.name}")
    if tuple(trial.values or ()) != tuple(result.values or ()):
        what.append(f"its values are {_listed(trial.values)}, recorded {_listed(result.values)}")
    for name, value in (result.params or {}).items():
        there = trial.params.get(name)
        if there is None or not _same(there, value):
            what.append(f"its {name} is {there}, recorded {value}")
    others = [
        key
        for key, value in result.recorded.to_flat().items()
        if not _says(trial.user_attrs.get(key), value)
    ]
    if others:
        more = " and others" if len(others) > SHOWN else ""
        what.append(f"its attributes {', '.join(others[:SHOWN])}{more} are other")
    return what


def _same(there: Value, recorded: Value) -> bool:
    if isinstance(there, str) or isinstance(recorded, str):
        return there == recorded
    return math.isclose(there, recorded, rel_tol=_ROUNDING)


def _listed(values: Sequence[float] | None) -> str:
    return ", ".join(f"{value:g}" for value in values) if values else "none"


def _says(text: str | None, value: Any) -> bool:
    """Whether the stored `text` is that of `value`.
    Compared as texts: NaN is not equal to itself.
    """
    expected = json.dumps(value)
    return text == expected or (text is not None and json.dumps(json.loads(text)) == expected)
