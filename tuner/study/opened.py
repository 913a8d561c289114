"""A study in the database: creating it, opening it, refusing one that means something else."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, insert, select, update

from tuner.errors import StorageError, UsageError, unknown_name
from tuner.storage import Claim, Database, EpochTable, Ledger, Roster, Verifications, initialisation_lock, schema
from tuner.storage.clock import database_now
from tuner.storage.schema import studies
from tuner.study.definition import StudyDefinition, differences
from tuner.study.note import describe, save_note
from tuner.study.policy import SearchPolicy
from tuner.study.suggest import suggest

_MARK = "tuner_definition_hash"
UNFINISHED = "tuner_unfinished_copy"
"""Marks a study whose trials are being copied from another one: cut short, it is nobody's and made again."""
DEFAULT_TRIALS = 50
"""The budget of a new study for which nobody named one."""

_DIRECTIONS = (StudyDirection.MINIMIZE, StudyDirection.MINIMIZE)


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """A study and everything about it in the database."""

    name: str
    definition: StudyDefinition
    database: Database
    optuna: Study
    ledger: Ledger
    epochs: EpochTable
    roster: Roster

    @property
    def study_id(self) -> int:
        return self.optuna._study_id  # noqa: SLF001 - Optuna has no public name for it

    @property
    def verifications(self) -> Verifications:
        """The runs that verify this study alone."""
        return Verifications(self.database.engine, [self.study_id])

    def ask(self, claim: Claim) -> FrozenTrial | None:
        """The claimed trial with all its parameters; None when the lease was lost meanwhile.

        May be called again with the same claim after a failure that left open what was stored.
        """
        trial = self.optuna._storage.get_trial(claim.trial_id)  # noqa: SLF001 - no public way to one trial
        distributions = self.definition.space.stored()
        chosen = suggest(self.optuna, trial, distributions)
        if not self.ledger.write_parameters(claim, chosen, distributions):
            return None
        trial.distributions = trial.distributions | distributions
        trial.params = trial.params | chosen
        return trial

    def key(self) -> str:
        """What no other study has, in this database or another: for files that belong to this one."""
        query = select(studies.c.created_at).where(studies.c.study_id == self.study_id)
        with self.database.engine.connect() as connection:
            return f"{self.name}@{connection.execute(query).scalar_one()!r}"

    def policy(self) -> SearchPolicy:
        """How the study is to be searched, as last told.

        Raises:
            StorageError: a newer tuner wrote it.
        """
        query = select(studies.c.policy).where(studies.c.study_id == self.study_id)
        with self.database.engine.connect() as connection:
            return SearchPolicy.from_json(connection.execute(query).scalar_one())

    def set_policy(self, policy: SearchPolicy) -> None:
        """Change it; running workers follow with their next trial."""
        with self.database.engine.begin() as connection:
            connection.execute(
                update(studies).where(studies.c.study_id == self.study_id).values(policy=policy.to_json())
            )

    def device_model(self) -> str | None:
        """The device model whose clock this study's times are on; None before the first trial."""
        query = select(studies.c.device_model).where(studies.c.study_id == self.study_id)
        with self.database.engine.connect() as connection:
            model: str | None = connection.execute(query).scalar_one()
        return model

    def bind_device_model(self, model: str) -> None:
        """Bind the study to `model` if it is bound to none yet.

        Raises:
            UsageError: its times were measured on another device model; they would share no axis.
        """
        self.refuse_other_device(model)
        mine = studies.c.study_id == self.study_id
        with self.database.engine.begin() as connection:
            connection.execute(
                update(studies).where(mine & studies.c.device_model.is_(None)).values(device_model=model)
            )
        self.refuse_other_device(model)  # two workers that bind at once: one of them was second

    def refuse_other_device(self, model: str) -> None:
        """Raises UsageError when the study is bound to a device model other than `model`; writes nothing."""
        bound = self.device_model()
        if bound not in (None, model):
            raise UsageError(
                f"study {self.name!r} holds times measured on {bound!r}, this device is {model!r}: times of different "
                f"devices do not compare; run on the same kind of device, or start another study with --study NAME"
            )


def check_resumable(
    database: Database, name: str, definition: StudyDefinition, *, trials: int | None, device_model: str
) -> None:
    """Refuse what cannot be created or resumed, before anything is written for it or for its sister studies.

    Without `trials`, the budget that the study has is meant.

    Raises:
        UsageError: a study of that name was made for another definition, data or objectives, or not by tuner; or it
            has trials left to run and its times were measured on another device model.
    """
    if name not in list_studies(database):
        _leftover(database, name)
        return
    opened = open_study(database, name)
    _refuse_if_different(opened, definition)
    counts = opened.ledger.counts()
    if counts.finished < (trials or counts.budget):
        opened.refuse_other_device(device_model)


def create_or_resume(database: Database, name: str, definition: StudyDefinition, *, trials: int | None) -> OpenStudy:
    """The study `name`, created when it is not there, with a budget of `trials` finished trials.

    Without `trials`, a study keeps its budget and a new one gets `DEFAULT_TRIALS`.

    Raises:
        UsageError: a study of that name was made for another definition, data or objectives, or not by tuner.
    """
    with initialisation_lock(database.address):
        if name not in list_studies(database):
            _create(database, name, definition, trials=trials or DEFAULT_TRIALS)
        opened = open_study(database, name)
    _refuse_if_different(opened, definition)
    if trials is not None:
        opened.ledger.set_budget(trials)
    return opened


def open_study(database: Database, name: str) -> OpenStudy:
    """The study `name`.

    Raises:
        UsageError: there is no such study here.
        StorageError: its stored definition is of another version, or damaged.
    """
    names = list_studies(database)
    if name not in names:
        raise unknown_name("study", name, names, more="; 'tuner launch' creates one" if not names else "")
    study = optuna.load_study(study_name=name, storage=database.optuna)
    study_id = study._study_id  # noqa: SLF001
    with database.engine.connect() as connection:
        text = connection.execute(select(studies.c.definition).where(studies.c.study_id == study_id)).scalar_one()
    try:
        stored = StudyDefinition.from_json(text)
    except (KeyError, TypeError, ValueError):
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read: it was made by another version of tuner, or is "
            "damaged; use that version, or start another study with --study NAME"
        ) from None
    return OpenStudy(
        name=name,
        definition=stored,
        database=database,
        optuna=study,
        ledger=Ledger(database, study_id),
        epochs=EpochTable(database.engine, study_id),
        roster=Roster(database.engine, study_id),
    )


def list_studies(database: Database) -> list[str]:
    """Names of the studies that tuner made here, oldest first."""
    with database.engine.connect() as connection:
        known = [row.study_id for row in connection.execute(select(studies.c.study_id).order_by(studies.c.study_id))]
    names = {frozen._study_id: frozen.study_name for frozen in database.optuna.get_all_studies()}  # noqa: SLF001
    return [names[study_id] for study_id in known if study_id in names]


def _create(database: Database, name: str, definition: StudyDefinition, *, trials: int) -> None:
    """Create the study with its default configuration waiting."""
    study = create_bare(database, name, definition)
    study.enqueue_trial(dict(definition.defaults.as_dict()), user_attrs={"default": True})
    with database.engine.begin() as connection:
        register(connection, study, definition, trials=trials)


def create_bare(database: Database, name: str, definition: StudyDefinition) -> Study:
    """A study without trials, unknown to tuner until it is registered: what was cut short before that starts over.

    To be called under the initialisation lock.

    Raises:
        UsageError: the name is taken by a study that tuner did not make.
    """
    leftover = _leftover(database, name)
    if leftover is not None:
        database.optuna.delete_study(leftover)
    study = optuna.create_study(study_name=name, storage=database.optuna, directions=list(_DIRECTIONS))
    study.set_user_attr(_MARK, definition.identity())
    study.set_user_attr("variant", definition.variant)
    study.set_user_attr("task", definition.task_name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # its interface may change: our tests would tell
        study.set_metric_names(list(definition.objectives))
    save_note(study, describe(definition))
    return study


def register(connection: Connection, study: Study, definition: StudyDefinition, *, trials: int) -> None:
    """Make tuner know a study; once the transaction ends, it can be run."""
    study_id = study._study_id  # noqa: SLF001
    # SQLite gives the number of a study that was deleted by other means to the next one.
    schema.forget_study(connection, study_id)
    connection.execute(
        insert(studies).values(
            study_id=study_id,
            definition=definition.to_json(),
            definition_hash=definition.identity(),
            budget=trials,
            created_at=database_now(),
        )
    )


def _leftover(database: Database, name: str) -> int | None:
    """The number of a study `name` whose creation was cut short; None when the name is free.

    Raises:
        UsageError: the name is taken by a study that tuner did not make, or that holds trials tuner knows nothing of.
    """
    found = next((each for each in database.optuna.get_all_studies() if each.study_name == name), None)
    if found is None:
        return None
    study_id: int = found._study_id  # noqa: SLF001
    states = {trial.state for trial in database.optuna.get_all_trials(study_id, deepcopy=False)}
    # Creation may end before the mark is set; such a study has nothing at all in it.
    bare = not states and not found.user_attrs and tuple(found.directions) == _DIRECTIONS
    ours = bare or _MARK in found.user_attrs
    if not ours or not (states <= {TrialState.WAITING} or found.user_attrs.get(UNFINISHED)):
        raise UsageError(f"study {name!r} exists here but was not made by tuner; choose another name with --study NAME")
    return study_id


def _refuse_if_different(opened: OpenStudy, asked: StudyDefinition) -> None:
    if opened.definition.identity() == asked.identity():
        return
    what = "; ".join(differences(opened.definition, asked)) or "its stored form"
    raise UsageError(
        f"study {opened.name!r} was made with another definition and its trials would not compare: {what}. "
        "Ask for the old definition, or start a new study with --study NAME"
    )
