"""Optuna's SQL storage, of which a damaged study hides no other one, and a study's own trials."""

from __future__ import annotations

import copy
import json
import threading
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, Engine, Table, func, select
from sqlalchemy.exc import SQLAlchemyError

from tuner.config import Value
from tuner.errors import StudyGoneError
from tuner.files.plain import UNREADABLE
from tuner.record import Recorded
from tuner.spec.space import SearchSpace
from tuner.storage.dialects import READING
from tuner.storage.optuna.private import (
    DIRECTIONS,
    STUDIES,
    STUDY_SYSTEM,
    STUDY_USER,
    TRIALS,
    CachedStorage,
    FrozenStudy,
    as_stored,
    beside_study,
    models,
    study_id_of,
    waiting,
)
from tuner.storage.records import (
    ATTEMPTS,
    ORIGINS,
    Attempt,
    TrialResult,
    cell,
    damage_named,
    read_rows,
)
from tuner.storage.schema import TRIAL, studies, work

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


class TrialStorage(RDBStorage):
    """An `RDBStorage` that reads studies beside a damaged one."""

    def get_all_studies(self) -> list[FrozenStudy]:
        with reading(self.engine) as connection:
            return all_studies(connection)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        with reading(self.engine) as connection:
            found = user_attributes(connection, study_id)
        if found is None:
            raise KeyError(models.NOT_FOUND_MSG)
        return found


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection for reading trials, whose failures are raised as Optuna raises them.

    One transaction for each statement: between them there is much to parse, and a server that waits
    for a client in the middle of a transaction takes it for frozen. On SQLite one for all of them,
    which holds nobody up.
    """
    options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    if engine.dialect.name == "sqlite":
        options = {READING: True}
    try:
        with engine.connect().execution_options(**options) as connection:
            yield connection
    except SQLAlchemyError as error:
        raise StorageInternalError(FAILED) from error


# Studies that are none of a variant.


KIND = "tuner_function"
"""The attribute of a study whose trials are calls of a function: what it is."""
_FOREIGN = "of another program"


@dataclass(frozen=True, slots=True)
class OtherStudy:
    """One that no variant has."""

    number: int
    name: str
    kind: str
    trials: int
    complete: int

    @property
    def is_foreign(self) -> bool:
        """Of another program."""
        return self.kind == _FOREIGN

    @property
    def in_words(self) -> str:
        return f"{self.kind}, {self.complete} of {self.trials} complete"


def studies_of_others(engine: Engine, ours: Container[str]) -> list[OtherStudy]:
    """The studies beside ours, as what they are: of other programs, or of functions."""
    c, state = TRIALS.c, as_stored(TRIALS.c.state)
    query = select(c.study_id, state, func.count()).group_by(c.study_id, state)
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    with reading(engine) as connection:
        known = all_studies(connection)
        for number, name, many in connection.execute(query):
            counts[number][str(name)] = many
    found = []
    for study in known:
        if study.study_name not in ours:
            number, kind = study_id_of(study), str(study.user_attrs.get(KIND, _FOREIGN))
            of = counts[number]
            trials, complete = sum(of.values()), of.get("COMPLETE", 0)
            found.append(OtherStudy(number, study.study_name, kind, trials, complete))
    return found


# The trials of a study that are its own, as `tuner_work` has them.
#
# Whoever reaches the database may ask, tell, enqueue and change trials through Optuna itself, and
# Optuna cannot tell them from ours. The table of work can: only what a worker of ours recorded
# under its token is a result. So a trial is here when it has a result of ours, when a worker of
# ours is at it, or when it waits for one. Parameters are as in Optuna's tables, so that whatever of
# Optuna's reads them finds what their distributions hold: `SearchSpace.true` leads back from them.
#
# What has a result does not change, unless it waits again under a higher limit of epochs: it is
# read once, and a look at a long history costs no more than what is new.


class ClaimedStorage(CachedStorage):
    """Optuna's storage with what it keeps in memory, for trials that claims have made."""

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        self._backend.set_trial_param(trial_id, param_name, param_value_internal, distribution)


class OwnStorage(ClaimedStorage):
    """Optuna's storage, in which one study has only its own trials.
    For everything else, it is the `backend`.
    """

    def __init__(self, backend: RDBStorage, own: OwnTrials) -> None:
        super().__init__(backend)
        self._own = own

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if study_id != self._own.study_id:
            return super().get_all_trials(study_id, deepcopy, states)
        trials = [trial for trial in self._own.read() if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


class OwnTrial(FrozenTrial):
    """One that has the record which its attributes say, where it has ended: no reader makes it
    anew.
    """

    __slots__ = ("recorded",)  # beside what Optuna compares
    recorded: Recorded


class OwnTrials:
    """Reads the trials of one study, which searches `space`, again and again."""

    def __init__(
        self, engine: Engine, study_id: int, name: str, made_at: float, space: SearchSpace
    ) -> None:
        self.study_id = study_id
        self._engine = engine
        self._name, self._made_at = name, made_at
        self._space, self._distributions = space, space.stored()
        self._lock = threading.Lock()
        self._ended: dict[int, FrozenTrial] = {}
        """Trials with a result, by number: as they are for good."""
        self._read_up_to = 0
        """The attempts up to this one are over and read. They are numbered under a lock on the
        study: none comes late."""

    def read(self) -> list[FrozenTrial]:
        """The study's own trials, by number.

        Raises:
            StudyGoneError: the study was deleted.
            StorageError: a row of it is damaged.
            StorageInternalError: the database failed.
        """
        named = damage_named(self._engine, self.study_id)
        with self._lock, named, reading(self._engine) as connection:
            return self._read(connection)

    def _read(self, connection: Connection) -> list[FrozenTrial]:
        mine = (work.c.study_id == self.study_id) & (work.c.kind == TRIAL)
        # Before the work: what is made work meanwhile is read twice, and counts once.
        enqueued = waiting(connection, self.study_id, select(work.c.trial_id).where(mine))
        query = select(work).where(mine & (work.c.work_id > self._read_up_to))
        rows = connection.execute(query.order_by(work.c.work_id)).all()
        self._require_study(connection)
        open_: dict[int, FrozenTrial] = {}
        for each in enqueued:
            open_[each.number] = self._open(each.trial_id, each.number, each.params)
        all_over = True
        for row in read_rows(ATTEMPTS, work, rows):
            all_over &= row.state not in ("waiting", "running")
            if all_over:
                self._read_up_to = row.work_id
            if row.state == "finished":
                self._ended[row.trial_number] = self._finished(row)
            elif row.state in ("waiting", "running"):
                trial = self._open(row.trial_id, row.trial_number, row.params, row.notes)
                if row.state == "running":
                    trial.state, trial.datetime_start = TrialState.RUNNING, _local(row.claimed_at)
                open_[row.trial_number] = trial
                self._ended.pop(row.trial_number, None)  # its row comes after that of a result
        return sorted((open_ | self._ended).values(), key=lambda trial: trial.number)

    def _require_study(self, connection: Connection) -> None:
        """SQLite gives the number of a study that is gone to the next one, of its name or not."""
        made = select(studies.c.created_at).select_from(beside_study(studies, studies.c.study_id))
        mine = studies.c.study_id == self.study_id
        if connection.execute(made.where(mine)).scalar_one_or_none() != self._made_at:
            raise StudyGoneError.of(self._name)

    def _finished(self, row: Attempt) -> FrozenTrial:
        if (known := self._ended.get(row.trial_number)) is not None:
            return known
        result = row.result
        assert result is not None, "a finished attempt has one"
        # Nothing that failed needs to have had a configuration of the space.
        failed = result.state == TrialState.FAIL
        params = self._fitting(row.params) if failed else ran_with(row, result, self._space)
        trial = self._made(row.trial_id, row.trial_number, result.state, params, row.notes)
        trial.values = list(result.values) if result.values is not None else None
        recorded, attributes = result.recorded, trial.user_attrs
        told = {name: each for name, each in attributes.items() if recorded.named(name) is None}
        trial.recorded = replace(recorded, **told) if told else recorded
        trial.user_attrs = attributes | recorded.to_flat()
        trial.datetime_start = _local(row.claimed_at)
        trial.datetime_complete = _local(row.ended_at)
        return trial

    def _open(
        self, trial_id: int, number: int, asked: Any, notes: Mapping[str, Any] | None = None
    ) -> FrozenTrial:
        """A trial that waits, perhaps with parts of its configuration."""
        fitting = self._fitting(asked)
        return self._made(trial_id, number, TrialState.WAITING, fitting, notes or {})

    def _made(
        self,
        trial_id: int,
        number: int,
        state: TrialState,
        params: Mapping[str, Any],
        notes: Mapping[str, Any],
    ) -> OwnTrial:
        own = self._distributions
        return OwnTrial(
            number=number,
            state=state,
            value=None,
            values=None,
            datetime_start=None,
            datetime_complete=None,
            params=self._space.held(params),
            distributions={name: own[name] for name in params if name in own},
            user_attrs={key: value for key, value in notes.items() if key in ORIGINS},
            system_attrs={key: value for key, value in notes.items() if key not in ORIGINS},
            intermediate_values={},
            trial_id=trial_id,
        )

    def _fitting(self, params: Any) -> dict[str, Any]:
        """Those of `params` that are in the study's space, with their true values; none when one
        of its parameters is not.
        """
        if not isinstance(params, dict):
            return {}
        ranges = self._space.ranges
        named = self._space.true({name: params[name] for name in ranges if name in params})
        return {} if any(ranges[name].outside(v) for name, v in named.items()) else named


def ran_with(row: Attempt, result: TrialResult, space: SearchSpace) -> dict[str, Value]:
    """The configuration that came to this result; nothing where none was recorded.

    Raises:
        DamagedRowError: no sampler of its study can have chosen that.
    """
    params = {} if row.params is None else row.params
    with cell("tuner_work.params", row.trial_number):
        if not isinstance(params, dict):
            raise ValueError("should be a table")  # noqa: TRY004 - told as damage
        whole = result.state == TrialState.COMPLETE and row.params is not None
        if wrong := space.impossible(params, whole=whole):
            raise ValueError(wrong)
    return params


def _local(seconds: float | None) -> datetime | None:
    """As Optuna shows moments: in local time, without saying so."""
    return datetime.fromtimestamp(seconds) if seconds else None  # noqa: DTZ006
