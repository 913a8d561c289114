"""What Optuna keeps to itself: numbers of studies and trials, their storage, its tables and rows.

Nothing else imports a private module of Optuna: its updates are looked after here.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.storages import BaseStorage
from optuna.storages._cached_storage import _CachedStorage as CachedStorage
from optuna.storages._rdb import models
from optuna.storages._rdb import storage as optuna_storage
from optuna.study import Study, StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Join,
    Label,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    String,
    Table,
    delete,
    func,
    insert,
    inspect,
    select,
    type_coerce,
    update,
)

from tuner.config import Value
from tuner.files.plain import UNREADABLE, excerpt, read_json
from tuner.spec.objectives import CONSTRAINTS
from tuner.spec.ranges import held
from tuner.storage.records import ORIGINS, TrialResult
from tuner.storage.schema import TRIAL, work

STUDIES: Table = models.StudyModel.__table__
DIRECTIONS: Table = models.StudyDirectionModel.__table__
STUDY_USER: Table = models.StudyUserAttributeModel.__table__
STUDY_SYSTEM: Table = models.StudySystemAttributeModel.__table__
TRIALS: Table = models.TrialModel.__table__
PARAMS: Table = models.TrialParamModel.__table__
VALUES: Table = models.TrialValueModel.__table__
TRIAL_USER: Table = models.TrialUserAttributeModel.__table__
TRIAL_SYSTEM: Table = models.TrialSystemAttributeModel.__table__

__all__ = ["CachedStorage", "FrozenStudy", "models"]


# ruff: noqa: SLF001


def study_id_of(study: Study | FrozenStudy) -> int:
    """The number of a study in its storage."""
    return int(study._study_id)


def storage_of(study: Study) -> BaseStorage:
    return study._storage


def trial_id_of(trial: FrozenTrial) -> int:
    """The number of a trial in its storage, of all studies; `trial.number` is that in its own."""
    return int(trial._trial_id)


def numbered(trial: FrozenTrial, number: int, trial_id: int | None = None) -> None:
    """Give a trial this number in its study, and in its storage, which is the same where that holds
    one study alone.
    """
    trial.number, trial._trial_id = number, number if trial_id is None else trial_id


def suggested(trial: Trial, name: str, distribution: BaseDistribution) -> float:
    """What a trial gets for a parameter, as it is stored, whichever kind it is of."""
    return float(distribution.to_internal_repr(trial._suggest(name, distribution)))


distribution_of: Callable[[str], BaseDistribution] = functools.lru_cache(maxsize=1024)(
    json_to_distribution
)
"""The distribution of a parameter's row, of its JSON."""


def as_stored(column: Any) -> ColumnElement[Any]:
    """What the database has in a column, whatever the column's type makes of it."""
    return type_coerce(column, String()).label(None)


# Studies by their names, in the caller's transaction.


def ids_of(connection: Connection, names: Sequence[str]) -> list[int]:
    """The numbers of the studies of these names that are there, the oldest first."""
    named = select(STUDIES.c.study_id).where(STUDIES.c.study_name.in_(names))
    return sorted(connection.execute(named).scalars())


def names_by_id(connection: Connection) -> dict[int, str]:
    """The names of all studies by their numbers, other programs' too."""
    query = select(STUDIES.c.study_id, STUDIES.c.study_name)
    return {int(row[0]): str(row[1]) for row in connection.execute(query)}


# How far trials are beyond the limits of their study, where `trial.set_constraint` of Optuna puts
# it.


PREFIX = f"{CONSTRAINTS}:"


def replace_constraints(
    engine: Engine, study_id: int, constraints: Mapping[int, Mapping[str, float]]
) -> None:
    """Let the results of a study have `constraints`, by trial number, and no others."""
    c = TRIAL_SYSTEM.c
    with engine.begin() as connection:
        rows = connection.execute(
            select(TRIALS.c.trial_id, TRIALS.c.number).where(TRIALS.c.study_id == study_id)
        )
        ids = {row.number: row.trial_id for row in rows}
        ours = (work.c.study_id == study_id) & (work.c.kind == TRIAL)
        mine = select(work.c.trial_id).where(ours & (work.c.state == "finished"))
        connection.execute(
            delete(TRIAL_SYSTEM).where(c.trial_id.in_(mine) & c.key.startswith(PREFIX))
        )
        new = [
            {"trial_id": ids[number], "key": f"{PREFIX}{key}", "value_json": json.dumps(value)}
            for number, of_trial in constraints.items()
            if number in ids  # else somebody deleted its row
            for key, value in of_trial.items()
        ]
        if new:
            connection.execute(insert(TRIAL_SYSTEM), new)


# Whether Optuna's tables are of the version that the installed Optuna wants, asked in plain SQL:
# alembic, which Optuna asks, takes longer to import than a database to open.


_SCRIPTS = Path(optuna_storage.__file__).parent / "alembic" / "versions"
_REVISION = re.compile(r'^(down_)?revision = "([^"]+)"$', flags=re.MULTILINE)
_VERSIONS = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As alembic makes it."""


class _LeftAlone(optuna_storage._VersionManager):
    """Answers who asks, such as the dashboard, and does nothing by itself."""

    def _init_version_info_model(self) -> None:
        pass

    def _init_alembic(self) -> None:
        pass


@contextmanager
def versions_left_alone() -> Iterator[None]:
    """While this lasts, a new storage of Optuna's neither asks nor notes of which version its
    tables are: to be told to skip its check as well.
    """
    theirs = optuna_storage._VersionManager
    optuna_storage._VersionManager = _LeftAlone  # type: ignore[misc]
    try:
        yield
    finally:
        optuna_storage._VersionManager = theirs  # type: ignore[misc]


def make_tables(engine: Engine) -> None:
    """Optuna's tables in an empty database. What is there in part, Optuna looks after."""
    with engine.begin() as connection:
        version = wanted_version()
        if version is None or inspect(connection).has_table(STUDIES.name):
            return
        models.BaseModel.metadata.create_all(connection)
        _VERSIONS.create(connection, checkfirst=True)
        of_today = {"schema_version": models.SCHEMA_VERSION, "library_version": optuna.__version__}
        connection.execute(insert(models.VersionInfoModel).values(of_today))
        connection.execute(insert(_VERSIONS).values(version_num=version))


def is_current(engine: Engine) -> bool:
    """Whether Optuna's tables are of the version wanted, as far as that can be told."""
    return current_version(engine) in {wanted_version()} - {None}


def current_version(engine: Engine) -> str | None:
    """The version of Optuna's tables; None where there is none, or more than one."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(_VERSIONS.name):
            return None
        found = connection.execute(select(_VERSIONS.c.version_num)).scalars().all()
    return str(found[0]) if len(found) == 1 else None


@functools.cache
def wanted_version() -> str | None:
    """The version that nothing follows among the scripts of the installed Optuna; None where that
    is not one.
    """
    revisions: dict[str, set[str]] = {"": set(), "down_": set()}
    for script in _SCRIPTS.glob("*.py"):
        for down, name in _REVISION.findall(script.read_text(encoding="utf-8")):
            revisions[down].add(name)
    last = revisions[""] - revisions["down_"]
    return last.pop() if len(last) == 1 else None


# Rows in its tables: of a study that is made, and of a trial that is taken or created, given its
# parameters, put back, told its result. Optuna's own calls make a transaction of each attribute.
# These statements run in the caller's transaction, so that a study or a trial and what is ours of
# it change together or not at all.


ENQUEUED = "fixed_params"
"""The system attribute in which Optuna keeps the configuration of a trial that was enqueued."""


def has_study(study_id: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that Optuna has the study of that number."""
    return select(STUDIES.c.study_id).where(STUDIES.c.study_id == study_id).exists()


def create_study(
    connection: Connection, name: str, user: Mapping[str, Any], system: Mapping[str, Any]
) -> int:
    """A study that minimises two values, with these attributes; its number."""
    study_id = primary_key(connection.execute(insert(STUDIES).values(study_name=name)))
    direction = {"study_id": study_id, "direction": StudyDirection.MINIMIZE}
    connection.execute(insert(DIRECTIONS), [direction | {"objective": n} for n in (0, 1)])
    _write(connection, STUDY_USER, study_id, user)
    set_of_study(connection, study_id, system)
    return study_id


def set_of_study(
    connection: Connection, study_id: int, told: Mapping[str, Any], table: Table = STUDY_SYSTEM
) -> None:
    """Set these attributes of a study: those that Optuna and its dashboard read, or a user's."""
    _write(connection, table, study_id, told)


def delete_study(connection: Connection, study_id: int) -> None:
    """Delete all that Optuna has of a study."""
    trials = select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study_id)
    for table in reversed(models.BaseModel.metadata.sorted_tables):  # who refers comes first
        if "study_id" in table.c:
            connection.execute(delete(table).where(table.c.study_id == study_id))
        elif "trial_id" in table.c:
            connection.execute(delete(table).where(table.c.trial_id.in_(trials)))


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
    with contextlib.suppress(*UNREADABLE):
        stored = distribution_of(distribution).to_external_repr(stored)
    return stored


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
    trial_id = insert_trial(connection, study_id, number, state=TrialState.WAITING)
    _write(connection, TRIAL_SYSTEM, trial_id, {ENQUEUED: dict(held)})
    note(connection, trial_id, notes)
    return trial_id


def run(connection: Connection, study_id: int, trial_id: int, number: int) -> None:
    """Let a trial run that waits, in a new row where somebody deleted its own."""
    running = {"state": TrialState.RUNNING, "datetime_start": _utc_now()}
    mine = TRIALS.c.trial_id == trial_id
    if not connection.execute(update(TRIALS).where(mine).values(running)).rowcount:
        insert_trial(connection, study_id, number, trial_id=trial_id, **running)


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


def insert_trial(connection: Connection, study_id: int, number: int, **columns: Any) -> int:
    """A new trial's id. Its study's row is locked meanwhile, by the caller."""
    row = {"study_id": study_id, "number": number, **columns}
    return primary_key(connection.execute(insert(TRIALS).values(row)))


def create_running(connection: Connection, study_id: int, number: int) -> int:
    """The same of one that runs."""
    running = {"state": TrialState.RUNNING, "datetime_start": _utc_now()}
    return insert_trial(connection, study_id, number, **running)


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


def forget(connection: Connection, trial_id: int, result: TrialResult) -> None:
    """Take from a trial that waits again the attributes that this result gave it."""
    recorded = [key for key in result.recorded.to_flat() if key not in ORIGINS]
    limits = [f"{PREFIX}{key}" for key in result.constraints]
    for table, keys in ((TRIAL_USER, recorded), (TRIAL_SYSTEM, limits)):
        theirs = (table.c.trial_id == trial_id) & table.c.key.in_(keys)
        connection.execute(delete(table).where(theirs))


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
    found = running & of_ours
    return found if study_id is None else found & (TRIALS.c.study_id == study_id)


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
    there: tuple[float, ...] | None = None
    kept = models.TrialValueModel
    with contextlib.suppress(*UNREADABLE):
        found_rows = connection.execute(query).all()
        there = tuple(kept.stored_repr_to_value(*row) for row in found_rows)
    told = tuple(result.values or ())
    if there != told:
        if there != ():
            connection.execute(delete(VALUES).where(mine))
        rows = []
        for objective, (stored, kind) in enumerate(map(kept.value_to_stored_repr, told)):
            row = {"trial_id": trial_id, "objective": objective}
            rows.append(row | {"value": stored, "value_type": kind})
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
    connection: Connection, table: Table, owner_id: int, attributes: Mapping[str, Any]
) -> None:
    """Set attributes of a trial or of a study, all in one statement:
    one by one they would cost a transaction each.
    """
    if not attributes:
        return
    owner = table.c["trial_id" if "trial_id" in table.c else "study_id"]
    there = (owner == owner_id) & table.c.key.in_(list(attributes))
    connection.execute(delete(table).where(there))
    rows = [{"key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
    connection.execute(insert(table), [{owner.name: owner_id} | row for row in rows])


def _utc_now() -> datetime:
    """As Optuna stores times: UTC, without saying so."""
    return datetime.now(UTC).replace(tzinfo=None)
