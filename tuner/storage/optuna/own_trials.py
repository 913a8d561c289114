"""The trials of a study that are its own, as `tuner_work` has them.

Whoever reaches the database may ask, tell, enqueue and change trials through Optuna itself, and
Optuna cannot tell them from ours. The table of work can: only what a worker of ours recorded under
its token is a result. So a trial is here when it has a result of ours, when a worker of ours is at
it, or when it waits for one. Parameters are as in Optuna's tables, so that whatever of Optuna's
reads them finds what their distributions hold: `SearchSpace.true` leads back from them.

What has a result never changes: it is read once, and a look at a long history costs no more than
what is new.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Container, Mapping
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, Engine, select

from tuner.config import Value
from tuner.errors import StudyGoneError
from tuner.spec.space import SearchSpace
from tuner.storage.optuna.private import CachedStorage
from tuner.storage.optuna.rows import beside_study, waiting
from tuner.storage.optuna.trials import reading
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


class OwnStorage(CachedStorage):
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

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        self._backend.set_trial_param(trial_id, param_name, param_value_internal, distribution)


class OwnTrials:
    """Reads the trials of one study, which searches `space`, again and again."""

    def __init__(
        self,
        engine: Engine,
        study_id: int,
        name: str,
        made_at: float,
        space: SearchSpace,
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
        trial.user_attrs |= result.recorded.to_flat()
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
    ) -> FrozenTrial:
        own = self._distributions
        return FrozenTrial(
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
