"""Creating a study: first in Optuna's tables, then in ours.

One that was cut short in between is made again.
"""

from __future__ import annotations

import warnings

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.study import Study, StudyDirection
from optuna.trial import TrialState
from sqlalchemy import Connection, insert

from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import ATTRIBUTE, Membership
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.storage.database_clock import database_now
from tuner.storage.optuna.private import study_id_of
from tuner.storage.schema import studies
from tuner.study.note import describe, save_note
from tuner.study.own_file import beside_all
from tuner.study.same_definition import BESIDE

_MARK = "tuner_definition_hash"
MEMBERSHIP = ATTRIBUTE
"""Where a study's membership is: with Optuna's own attributes, before the study is known to us."""
UNFINISHED = "tuner_unfinished_copy"
"""Marks a study whose trials are being copied from another one:
cut short, it is nobody's and made again."""
_DIRECTIONS = (StudyDirection.MINIMIZE, StudyDirection.MINIMIZE)


def create_study(
    database: Database,
    name: str,
    definition: StudyDefinition,
    membership: Membership,
    *,
    trials: int,
    policy: SearchPolicy | None = None,
) -> None:
    """Create the study with its default configuration waiting."""
    study = create_bare(database, name, definition, membership)
    if beside := beside_all(definition):
        study.set_user_attr(BESIDE, beside)
    study.enqueue_trial(
        dict(definition.defaults.as_dict()), user_attrs=Recorded(default=True).to_flat()
    )
    with database.engine.begin() as connection:
        register(connection, study, definition, trials=trials, policy=policy)


def create_bare(
    database: Database, name: str, definition: StudyDefinition, membership: Membership
) -> Study:
    """A study without trials, unknown to tuner until it is registered: what was cut short before
    that starts over.

    To be called under the initialisation lock.

    Raises:
        UsageError: the name is taken by a study that tuner did not make.
    """
    found = leftover(database, name)
    if found is not None:
        database.optuna.delete_study(found)
    study = optuna.create_study(
        study_name=name, storage=database.optuna, directions=list(_DIRECTIONS)
    )
    study.set_user_attr(_MARK, definition.identity())
    study.set_user_attr(MEMBERSHIP, membership.model_dump())
    study.set_user_attr("variant", definition.variant)
    study.set_user_attr("task", definition.task_name)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ExperimentalWarning
        )  # its interface may change: our tests would tell
        study.set_metric_names(list(definition.objectives))
    save_note(study, describe(definition))
    return study


def register(
    connection: Connection,
    study: Study,
    definition: StudyDefinition,
    *,
    trials: int,
    policy: SearchPolicy | None = None,
) -> None:
    """Make tuner know a study; once the transaction ends, it can be run."""
    study_id = study_id_of(study)
    # SQLite gives the number of a study that was deleted by other means to the next one.
    schema.forget_study(connection, study_id)
    connection.execute(
        insert(studies).values(
            study_id=study_id,
            definition=definition.to_json(),
            definition_hash=definition.identity(),
            budget=trials,
            policy=(policy or SearchPolicy()).to_json(),
            created_at=database_now(),
        )
    )


def leftover(database: Database, name: str) -> int | None:
    """The number of a study `name` whose creation was cut short; None when the name is free.

    Raises:
        UsageError: the name is taken by a study that tuner did not make, or that holds trials tuner
            knows nothing of.
    """
    found = next(
        (each for each in database.optuna.get_all_studies() if each.study_name == name), None
    )
    if found is None:
        return None
    study_id = study_id_of(found)
    states = {trial.state for trial in database.optuna.get_all_trials(study_id, deepcopy=False)}
    # Creation may end before the mark is set; such a study has nothing at all in it.
    bare = not states and not found.user_attrs and tuple(found.directions) == _DIRECTIONS
    ours = bare or _MARK in found.user_attrs
    if not ours or not (states <= {TrialState.WAITING} or found.user_attrs.get(UNFINISHED)):
        raise UsageError(
            f"study {name!r} exists here but was not made by tuner; choose another name with "
            "--study NAME"
        )
    return study_id
