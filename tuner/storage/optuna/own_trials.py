"""The trials of a study that are its own, as their claims have them.

Whoever reaches the database may ask, tell, enqueue and change trials through Optuna itself, and
Optuna cannot tell them from ours. A claim can: only what a worker of ours recorded under its token
is a result, and it is shown as it was recorded, whatever Optuna's row says of it. So a trial is
here when it has a result of ours, when a worker of ours is at it, or when it waits for one. Of what
others wrote, only those parameters count that the study's space holds.

What has a result never changes: it is read once, and a look at a long history costs no more than
what is new.
"""

from __future__ import annotations

import copy
import json
import math
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import ColumnElement, Connection, Engine, or_, select

from tuner.config import Value
from tuner.errors import StudyGoneError
from tuner.storage.optuna.private import PARAMS, TRIAL_SYSTEM, TRIAL_USER, TRIALS
from tuner.storage.optuna.rows import ENQUEUED, beside_study
from tuner.storage.optuna.trials import FEW, bare_trials, part_rows, reading
from tuner.storage.records import ATTEMPTS, Attempt, cell, damage_named, read_rows
from tuner.storage.schema import claims, studies

ORIGINS: Mapping[str, type] = {"default": bool, "warm_start": str, "copied_from": str}
"""Attributes that say where a configuration comes from:
written before it runs, and so beside its result."""

_OPEN = (TrialState.WAITING, TrialState.RUNNING)
_ROUNDING = 1e-9
"""Of a float on its way through a database, as a share of it."""

Claims = dict[int, Attempt]
"""By the ids of their trials."""
Trials = dict[int, FrozenTrial]
"""By id."""
Complete = Callable[[Mapping[str, Value]], dict[str, Value]]
"""Those of some parameters that are a whole configuration; nothing where they are not one."""


class OwnStorage(_CachedStorage):
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
    """Reads the trials of one study again and again;
    `distributions` are those of its parameters, `complete` says what of some of them is a
    configuration.
    """

    def __init__(
        self,
        engine: Engine,
        study_id: int,
        name: str,
        made_at: float,
        distributions: Mapping[str, BaseDistribution],
        complete: Complete,
    ) -> None:
        self.study_id = study_id
        self._engine = engine
        self._name, self._made_at = name, made_at
        self._distributions = distributions
        self._complete = complete
        self._lock = threading.Lock()
        self._ended: Trials = {}
        """Trials with a result that Optuna was told: as they are for good."""
        self._read_up_to = 0
        """The claims up to this one are over and read. They are numbered under a lock on the study:
        none comes late."""
        self._known: set[int] = set()
        """Ids of trials that some worker of ours had, with or without a result."""
        self._strange: set[int] = set()
        """Ids of trials that run for another program."""

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
        held, found, read_up_to = self._look(connection)
        if unknown := self._unknown(found):
            # Claimed since then, unless it is another program's.
            held, found, read_up_to = self._look(connection)
            self._strange |= unknown - self._known
        self._require_study(connection)
        self._add_parts(connection, found)
        now: Trials = {}
        for trial_id in held.keys() | found.keys():
            trial = self._own(trial_id, held.get(trial_id), found.get(trial_id))
            if trial is not None:
                now[trial_id] = trial
        self._ended |= {
            i: now[i] for i, claim in held.items() if claim.state == "finished" and claim.told
        }
        self._read_up_to = read_up_to
        return sorted((now | self._ended).values(), key=lambda trial: trial.number)

    # -- what there is -----------------------------------------------------------------------------

    def _look(self, connection: Connection) -> tuple[Claims, Trials, int]:
        """Claims that run or have a result, bare trials,
        and the claim up to which all are over then.

        Without the trials that are read for good. Claims first: what a finished one says was
        written before.
        """
        c = claims.c
        mine = (c.study_id == self.study_id) & (c.claim_id > self._read_up_to)
        query = select(claims).where(mine).order_by(c.claim_id)
        rows = read_rows(ATTEMPTS, claims, connection.execute(query).all())
        self._known.update(row.trial_id for row in rows)
        held: Claims = {}
        read_up_to, all_over = self._read_up_to, True
        for row in rows:
            all_over &= row.state in ("returned", "lost") or (row.state == "finished" and row.told)
            if all_over:
                read_up_to = row.claim_id
            if row.state in ("running", "finished") and row.trial_id not in self._ended:
                held[row.trial_id] = row
        bare = bare_trials(connection, self._wanted(held))
        found = {t._trial_id: t for t in bare if t._trial_id not in self._ended}  # noqa: SLF001
        return held, found, read_up_to

    def _wanted(self, held: Iterable[int]) -> ColumnElement[bool]:
        ids, of_study = list(held), TRIALS.c.study_id == self.study_id
        if len(ids) > FEW:
            return of_study  # the database finds them sooner than a list of their names
        return of_study & or_(TRIALS.c.state.in_(_OPEN), TRIALS.c.trial_id.in_(ids))

    def _unknown(self, found: Trials) -> set[int]:
        running = {i for i, trial in found.items() if trial.state == TrialState.RUNNING}
        return running - self._known - self._strange

    def _require_study(self, connection: Connection) -> None:
        """SQLite gives the number of a study that is gone to the next one, of its name or not."""
        made = select(studies.c.created_at).select_from(beside_study(studies, studies.c.study_id))
        mine = studies.c.study_id == self.study_id
        if connection.execute(made.where(mine)).scalar_one_or_none() != self._made_at:
            raise StudyGoneError.of(self._name)

    def _add_parts(self, connection: Connection, found: Trials) -> None:
        """What Optuna has of these trials, in so far as it can be ours."""
        wanted = self._wanted(found)
        parts = part_rows(connection, found, wanted, PARAMS, "param_name", "param_value")
        for trial, (_, name, value) in parts:
            if name in self._distributions:
                with cell(f"trial_params.param_value ({name})", trial.number):
                    trial.params[name] = self._distributions[name].to_external_repr(float(value))
        origin = TRIAL_USER.c.key.in_(list(ORIGINS))
        parts = part_rows(connection, found, wanted, TRIAL_USER, "key", "value_json", only=origin)
        for trial, (_, key, text) in parts:
            with cell(f"trial_user_attributes.value_json ({key})", trial.number):
                value = json.loads(text)
            if isinstance(value, ORIGINS[key]):
                trial.user_attrs[key] = value
        parts = part_rows(connection, found, wanted, TRIAL_SYSTEM, "key", "value_json")
        for trial, (_, key, text) in parts:
            with cell(f"trial_system_attributes.value_json ({key})", trial.number):
                value = json.loads(text)
            if key == ENQUEUED:
                trial.system_attrs[key] = self._fitting(value)
            elif is_number(value):  # as are a constraint, and the generation of a genetic sampler
                trial.system_attrs[key] = value

    # -- as our own --------------------------------------------------------------------------------

    def _own(
        self, trial_id: int, claim: Attempt | None, found: FrozenTrial | None
    ) -> FrozenTrial | None:
        """The trial as its claim has it; None for another program's. `found` is what Optuna has, if
        it has it.
        """
        if claim is None:
            assert found is not None, "either a claim or a row brought it here"
            ours = trial_id in self._known or ENQUEUED in found.system_attrs
            if found.state != TrialState.WAITING and not (
                ours and found.state == TrialState.RUNNING
            ):
                return None
            # Somebody took it from the queue: the next worker or launch of ours puts it back.
            return self._made(trial_id, found.number, TrialState.WAITING, found)
        if claim.state == "running":
            return self._made(trial_id, claim.trial_number, TrialState.RUNNING, found)
        result = claim.result
        assert result is not None, "a finished claim has one"
        trial = self._made(trial_id, claim.trial_number, result.state, found, result.params)
        trial.values = list(result.values) if result.values is not None else None
        # Of a trial that was set aside nobody recorded where its configuration comes from.
        recorded = result.recorded.to_flat()
        trial.user_attrs = recorded if result.params else trial.user_attrs | recorded
        return trial

    def _made(
        self,
        trial_id: int,
        number: int,
        state: TrialState,
        found: FrozenTrial | None,
        params: dict[str, Value] | None = None,
    ) -> FrozenTrial:
        if params is None:
            params = self._complete(self._fitting(found.params)) if found is not None else {}
        own = self._distributions
        seen: dict[str, Any] = {"user_attrs": {}, "system_attrs": {}}
        if found is not None:
            seen = {name: dict(getattr(found, name)) for name in seen}
        ended = found is not None and state.is_finished()
        return FrozenTrial(
            number=number,
            state=state,
            value=None,
            values=None,
            datetime_start=found.datetime_start if found else None,
            datetime_complete=found.datetime_complete if found and ended else None,
            params=params,
            distributions={name: own[name] for name in params if name in own},
            intermediate_values={},
            trial_id=trial_id,
            **seen,
        )

    def _fitting(self, params: Any) -> dict[str, Any]:
        """Those of `params` that are in the study's space;
        none when one of its parameters is not.
        """
        if not isinstance(params, dict):
            return {}
        named = {name: params[name] for name in self._distributions if name in params}
        return (
            named
            if all(_fits(value, self._distributions[name]) for name, value in named.items())
            else {}
        )


def is_number(value: Any) -> bool:
    """True for a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _fits(value: Any, distribution: BaseDistribution) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return any(type(value) is type(each) and value == each for each in distribution.choices)
    if not is_number(value) or not isinstance(distribution, FloatDistribution | IntDistribution):
        return False
    tolerance = _ROUNDING * abs(value)
    return bool(distribution.low - tolerance <= value <= distribution.high + tolerance)
