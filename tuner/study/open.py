"""A study in the database: creating it, opening it, refusing one that means something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import Column, select, update
from sqlalchemy.exc import IntegrityError, NoResultFound

from tuner.config import Value
from tuner.devices.group import devices_of_all
from tuner.errors import StorageError, StudyGoneError, UsageError, unknown_name
from tuner.files.plain import explained
from tuner.search.suggest import suggest
from tuner.settings import in_percent
from tuner.spec.definition import StudyDefinition, raised, stored_definition
from tuner.spec.margin import checked_margin
from tuner.spec.membership import Membership, stored_membership
from tuner.spec.policy import Registered, SearchPolicy
from tuner.storage.database import Database, initialisation_lock
from tuner.storage.optuna.private import STUDY_USER, names_by_id, numbered, study_id_of
from tuner.storage.optuna.trials import OwnStorage, OwnTrials, attributes, reading
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.epochs import EpochTable
from tuner.storage.queue.roster import Roster
from tuner.storage.queue.verifications import Verifications
from tuner.storage.records import ORIGINS, Claim
from tuner.storage.schema import OF_A_VARIANT, studies
from tuner.study.create import (
    MEMBERSHIP,
    create_study,
    redefine,
    refuse_foreign,
    refuse_if_different,
)

DEFAULT_TRIALS = 50
"""The budget of a new study for which nobody named one."""


@dataclass(frozen=True, slots=True)
class OpenStudy:
    """A study and everything about it in the database.
    `optuna` has the trials that are its own, as recorded.
    """

    name: str
    made_at: float
    made_as: str
    """What it was called when it was made: its sampler's seed and its files are of that."""
    definition: StudyDefinition
    membership: Membership
    database: Database
    optuna: Study
    ledger: Ledger
    epochs: EpochTable
    roster: Roster

    @property
    def study_id(self) -> int:
        return study_id_of(self.optuna)

    @property
    def verifications(self) -> Verifications:
        """The runs that verify this study alone."""
        return Verifications(self.database.engine, [self.study_id])

    def ask(self, claim: Claim) -> FrozenTrial | None:
        """The claimed trial with all its parameters; None when the lease was lost meanwhile.

        May be called again with the same claim after a failure that left open what was stored.
        """
        space = self.definition.space
        row = self.ledger.asked(claim)
        if row is None:
            return None
        trial = create_trial(state=TrialState.RUNNING, system_attrs=row.notes)
        numbered(trial, claim.trial_number, claim.trial_id)
        chosen = suggest(self.optuna, trial, row.params, space)
        distributions = {name: r.stored() for name, r in space.there(chosen).items()}
        try:
            held = self.ledger.write_parameters(claim, chosen, distributions, trial.system_attrs)
        except IntegrityError:
            self.ledger.counts()  # says so when the study is gone
            gone = f"trial {claim.trial_number} of study {self.name!r} is in the database no more"
            raise StorageError(
                f"{gone}: another program deleted it; 'tuner db check' says what is left"
            ) from None
        trial.params, trial.distributions = chosen, distributions
        trial.user_attrs |= {k: v for k, v in row.notes.items() if k in ORIGINS}
        return trial if held else None

    def enqueue(self, params: Mapping[str, Value], **notes: bool | str) -> None:
        """Let a configuration wait for a worker, with where it comes from (see `ORIGINS`)."""
        self.ledger.enqueue(params, self.definition.space.held(params), notes)

    def key(self) -> str:
        """What no other study has, in this database or another:
        for files that belong to this one.
        """
        return f"{self.made_as}@{self.made_at!r}"

    def is_there(self) -> bool:
        """Whether the study of this name and number is still this one: SQLite gives both again."""
        query = select(studies.c.created_at).where(studies.c.study_id == self.study_id)
        with self.database.engine.connect() as connection:
            return bool(connection.execute(query).scalar_one_or_none() == self.made_at)

    def policy(self) -> SearchPolicy:
        """How the study is to be searched, as last told.

        Raises:
            StorageError: a newer tuner wrote it.
        """
        return SearchPolicy.from_json(self._stored(studies.c.policy), self.name)

    def set_policy(self, policy: SearchPolicy) -> None:
        """Change it; running workers follow with their next trial."""
        mine = studies.c.study_id == self.study_id
        with self.database.engine.begin() as connection:
            connection.execute(update(studies).where(mine).values(policy=policy.to_json()))

    def device_model(self) -> str | None:
        """The device model whose clock this study's times are on; None before the first trial."""
        model: str | None = self._stored(studies.c.device_model)
        return model

    def _stored(self, column: Column[Any]) -> Any:
        query = select(column).where(studies.c.study_id == self.study_id)
        with self.database.engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def bind_device_model(self, model: str) -> None:
        """Bind the study to `model` if it is bound to none yet.

        Raises:
            UsageError: its times were measured on another device model; they would share no axis.
        """
        self.refuse_other_device(model)
        mine = studies.c.study_id == self.study_id
        with self.database.engine.begin() as connection:
            connection.execute(
                update(studies)
                .where(mine & studies.c.device_model.is_(None))
                .values(device_model=model)
            )
        self.refuse_other_device(model)  # two workers that bind at once: one of them was second

    def refuse_other_device(self, model: str) -> None:
        """Raises UsageError when the study is bound
        to a device model other than `model`; writes nothing.
        """
        bound = self.device_model()
        if bound not in (None, model):
            raise UsageError(
                f"study {self.name!r} holds times measured on {bound!r}, this device is {model!r}: "
                "times of different "
                "devices do not compare; run on the same kind of device, or start another study "
                "with --study NAME"
            )


def devices_of_trials(studies: Iterable[OpenStudy]) -> int:
    """How many train each trial of these studies together.

    Raises:
        UsageError: they are not the same number.
    """
    return devices_of_all({each.name: each.definition.training.gpus_per_trial for each in studies})


def check_resumable(
    database: Database,
    name: str,
    definition: StudyDefinition,
    *,
    trials: int | None,
    device_model: str | None,
) -> None:
    """Refuse what cannot be created or resumed,
    before anything is written for it or for its sister studies.

    Without `trials`, the budget that the study has is meant; without `device_model`, any is.

    Raises:
        UsageError: a study of that name was made for another definition, data or objectives, or not
            by tuner; or it has trials left to run and its times were measured on another device
            model.
    """
    if name not in list_studies(database):
        with database.engine.connect() as connection:
            refuse_foreign(connection, name)
        return
    opened = open_study(database, name)
    _refuse_if_different(opened, definition)
    counts = opened.ledger.counts()
    if device_model is not None and counts.finished < (trials or counts.budget):
        opened.refuse_other_device(device_model)


def create_or_resume(
    database: Database,
    name: str,
    definition: StudyDefinition,
    *,
    trials: int | None,
    membership: Membership | None = None,
    policy: SearchPolicy | None = None,
) -> OpenStudy:
    """The study `name`, created when it is not there, with a budget of `trials` finished trials.

    With a higher limit of epochs than it had, the trials that the old one cut off wait again.
    Without `trials`, a study keeps its budget and a new one gets `DEFAULT_TRIALS`. A new one has
    the `membership`, or is by itself, and the `policy` from its first moment on. To be called under
    the initialisation lock, where others may do the same.

    Raises:
        UsageError: a study of that name was made for another definition, data or objectives, or not
            by tuner; or it cannot have the higher limit of epochs now.
    """
    if name not in list_studies(database):
        place = membership or Membership.of_new(name)
        create_study(
            database, name, definition, place, trials=trials or DEFAULT_TRIALS, policy=policy
        )
    opened = open_study(database, name)
    if _refuse_if_different(opened, definition) != opened.definition:
        opened.ledger.reopen(lambda result: result.recorded.is_cut)
        redefine(opened.database, opened.study_id, definition)
        opened = open_study(database, name)
    if trials is not None:
        opened.ledger.set_budget(trials)
    return opened


def _refuse_if_different(opened: OpenStudy, definition: StudyDefinition) -> StudyDefinition:
    """What the study is from now on: what it was, or the same with a higher limit of epochs.

    Raises:
        UsageError: as `create_or_resume`.
    """
    there, limit = opened.definition, definition.training.max_epochs
    now = raised(there, limit)
    refuse_if_different(opened.name, now, definition, lambda: opened.optuna.user_attrs)
    if now == there:
        return there
    was = f"--max-epochs {limit}: study {opened.name!r} has a limit of {there.training.max_epochs}"
    if opened.roster.working() or opened.ledger.counts().running:
        raise UsageError(f"{was}, and workers are at it; raise it once they have ended")
    if opened.verifications.runs():
        raise UsageError(
            f"{was}, and runs on fresh seeds under it; start another study with --study NAME"
        )
    return now


def open_study(database: Database, name: str) -> OpenStudy:
    """The study `name`.

    Raises:
        UsageError: there is no such study here.
        StorageError: its stored definition is of another version, or it is damaged.
    """
    there = attributes_of_studies(database)
    if name not in there:
        names = list(there)
        raise unknown_name(
            "study", name, names, more="; 'tuner launch' creates one" if not names else ""
        )
    try:
        study_id = database.optuna.get_study_id_from_name(name)
        with database.engine.connect() as connection:
            mine = studies.c.study_id == study_id
            query = select(studies.c.definition, studies.c.created_at).where(mine)
            text, made_at = connection.execute(query).one()
    except (KeyError, NoResultFound):  # between the two looks
        raise StudyGoneError.of(name) from None
    stored = stored_definition(name, text)
    membership = stored_membership(name, there[name].get(MEMBERSHIP))
    own = OwnTrials(database.engine, study_id, name, made_at, stored.space)
    try:
        study = optuna.load_study(study_name=name, storage=OwnStorage(database.optuna, own))
    except KeyError:
        raise StudyGoneError.of(name) from None
    except LookupError as error:  # which is Optuna's own word on its enumeration
        raise StorageError(
            f"study {name!r} cannot be read: study_directions.direction: {explained(error)}; "
            "restore it from a backup"
        ) from None
    return OpenStudy(
        name=name,
        made_at=made_at,
        made_as=stored_key(name, there[name], made_at).rpartition("@")[0],
        definition=stored,
        membership=membership,
        database=database,
        optuna=study,
        ledger=Ledger(database, study_id, name=name, made_at=made_at),
        epochs=EpochTable(database.engine, study_id),
        roster=Roster(database.engine, study_id),
    )


MADE_AS = "tuner_made_as"
"""Beside a study that was renamed: what it was called when it was made."""


def stored_key(name: str, attributes: Mapping[str, Any], made_at: float) -> str:
    """`OpenStudy.key` of a study of this name, by what is stored beside it."""
    made_as = attributes.get(MADE_AS)
    return f"{made_as if isinstance(made_as, str) else name}@{made_at!r}"


def list_studies(database: Database) -> list[str]:
    """Names of the studies that tuner made here, oldest first."""
    return list(attributes_of_studies(database))


def attributes_of_studies(database: Database) -> dict[str, Mapping[str, Any]]:
    """What is stored beside each study that tuner made here, by its name, oldest first."""
    known = select(studies.c.study_id).where(OF_A_VARIANT).order_by(studies.c.study_id)
    with reading(database.engine) as connection:
        ids = connection.execute(known).scalars().all()
        names, found = names_by_id(connection), attributes(connection, STUDY_USER)
    return {names[each]: found.get(each, {}) for each in ids if each in names}


# What is registered of a retune, with the first study of its variant.


RETUNE = "tuner_retune"
"""Where it is: with Optuna's own attributes of the study."""


def registered_in(database: Database, study: str) -> Registered | None:
    """What is registered with a study; None where nothing is, or there is no such study.

    Raises:
        StorageError: it cannot be read.
    """
    stored = attributes_of_studies(database).get(study, {}).get(RETUNE)
    if stored is None:
        return None
    try:
        return Registered.model_validate(stored, strict=True)
    except ValueError as error:
        raise StorageError(
            f"the retune that is registered with study {study!r} cannot be read "
            f"({explained(error)}); a newer tuner wrote it, or another program"
        ) from None


def register_retune(study: OpenStudy, retune: Registered) -> None:
    """Register it with a study."""
    plain = retune.as_dict()
    study.database.optuna.set_study_user_attr(study.study_id, RETUNE, plain)


# A study's margin, recorded before its confirmation begins and the same from then on.


def record_margin(study: OpenStudy, said: float | None = None) -> float:
    """Record the margin with the study, to be called before a run of its confirmation is planned:
    what was `said`, else what the study has, else the usual one. The margin that counts.

    Raises:
        UsageError: no margin, or another than the one that verification runs have begun with.
    """
    with initialisation_lock(study.database.address):  # a launch may be changing another field
        before = study.policy()
        margin = before.counted_margin if said is None else checked_margin(said)
        if margin != before.margin:
            refuse_other_margin(study, margin)
            study.set_policy(before.but(margin=margin))
    return margin


def refuse_other_margin(study: OpenStudy, said: float | None) -> None:
    """Raises UsageError where a margin is recorded, verification has begun and another is said."""
    recorded = study.policy().margin
    if recorded is None or said == recorded or not study.verifications.runs():
        return
    raise UsageError(
        f"study {study.name!r} has had a margin of {in_percent(recorded)} since before its "
        "verification began, and keeps it; to look at another, say it to 'tuner best --margin'"
    )
