"""Studies made of exported ones: as they were, or over another space."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, insert, select, update

from tuner.config import Hyperparameters, Value
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.search.history import configuration
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.objectives import violations
from tuner.spec.space import SearchSpace
from tuner.spec.study_file import StudyFile
from tuner.storage.database import Database, initialisation_lock
from tuner.storage.optuna.private import PREFIX, study_id_of
from tuner.storage.optuna.rows import write_all_attributes
from tuner.storage.queue.gpu_hours import note_without_result
from tuner.storage.queue.verifications import plan_renamed, recorded_row
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims, epochs, studies, verifications
from tuner.study.archive import Archive
from tuner.study.code import mark_untrusted
from tuner.study.create import UNFINISHED, create_bare, register
from tuner.study.group import members_of, memberships
from tuner.study.open import RETUNE, OpenStudy, list_studies, open_study
from tuner.study.own_file import put_source
from tuner.study.results import TrialRecord


def restore(database: Database, archive: Archive, name: str, *, origin: str = "") -> OpenStudy:
    """A new study `name` that holds what `archive` holds, ready to be continued.

    It appears whole: one that was cut short while it was written is unknown to tuner, and is made
    again next time. `origin` is the file that it came from, where a class that it names is not to
    be trusted yet.

    Under its own name it stays the search of its group that it was, and of its retune, which goes
    on here; under another one it is by itself. Its seeds go on either way.

    Raises:
        UsageError: there is a study of that name, or that search of its group, or the group is of
            another definition here.
    """
    place = archive.membership if name == archive.name else archive.membership.under(name)
    with initialisation_lock(database.address):
        if name in list_studies(database):
            raise UsageError(f"there is a study {name!r} already; choose another one with --name")
        _refuse_if_unfit(database, place, archive.definition, alone=name != archive.name)
        study = create_bare(database, name, archive.definition, place)
        study.set_user_attr(UNFINISHED, value=True)
        mark_untrusted(study, archive.definition, origin)
        ids: dict[int, int] = {}
        attributes: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        for template in _templates(archive):
            told = template.user_attrs, template.system_attrs
            template.user_attrs, template.system_attrs = {}, {}
            # Not add_trial, which checks each value anew.
            ids[template.number] = database.optuna.create_new_trial(study_id_of(study), template)
            attributes[ids[template.number]] = told
        with database.engine.begin() as connection:
            write_all_attributes(connection, attributes)
            register(connection, study, archive.definition, trials=archive.budget)
            _write_ours(connection, study_id_of(study), name, ids, archive)
        loss = archive.definition.training.loss
        codes = {archive.definition.architecture.model: archive.code}
        if loss is not None:
            codes[loss.term] = archive.loss_code
        for reference, code in codes.items():
            if code is not None:
                location = reference.rpartition(":")[0]
                put_source(database.engine, Path(location).name, code.encode())
        if archive.retune is not None and name == archive.name:
            # Whether all of it is here, the retune finds out.
            retune = archive.retune.but(finished=False)
            study.set_user_attr(RETUNE, retune.as_dict())
        study.set_user_attr(UNFINISHED, value=False)
    return open_study(database, name)


def _refuse_if_unfit(
    database: Database, place: Membership, definition: StudyDefinition, *, alone: bool
) -> None:
    """Raises UsageError when a study cannot join the group that is here, or would although it is to
    be `alone`.
    """
    there = members_of(memberships(database), place.group)
    if there and alone:
        raise UsageError(
            f"{place.group!r} is the name of a group of searches here; choose another name"
        )
    if place.search in there:
        raise UsageError(
            f"there is search {place.search} of group {place.group!r} already, "
            f"{there[place.search]!r}; choose another name, under which it is by itself"
        )
    for name in there.values():
        if open_study(database, name).definition.identity() != definition.identity():
            raise UsageError(
                f"group {place.group!r} is of another definition here; choose another name, under "
                "which it is by itself"
            )


def over_space(archive: Archive, file: StudyFile, name: str) -> tuple[Archive, Counter[str]]:
    """What a new study `name` over the space of a study file begins with: those finished trials of
    `archive` that lie in it.

    The new study has the file's variant, space and defaults; everything else is the archive's.

    Returns:
        What `restore` makes that study of, and how many trials were left out by the first
        hyperparameter that is outside.

    Raises:
        UsageError: the file is of another network, or its space is the archive's.
    """
    there, here = archive.definition.architecture.model, file.architecture().model
    if here.rpartition("/")[2] != there.rpartition("/")[2]:
        raise UsageError(
            f"--space: {file.name} is of the network {here}, study {archive.name!r} of {there}; "
            "their trials do not compare"
        )
    defaults = file.default_hyperparameters()
    definition = dataclasses.replace(
        archive.definition,
        variant=file.name,
        core_change=file.core_change,
        space=file.space,
        defaults=defaults,
    )
    if file.space.definition() == archive.definition.space.definition():
        raise UsageError(
            f"--space: study {archive.name!r} has the space of {file.name} already; leave it out"
        )
    kept, left_out = _inside(archive, file.space, defaults)
    records, numbers = list(kept.values()), {old: record.number for old, record in kept.items()}
    if not any(record.is_default for record in records):
        params: dict[str, Value] = dict(defaults.as_dict())
        waiting = Recorded(default=True)
        records.append(
            TrialRecord(len(kept), TrialState.WAITING, params, None, waiting, None, None)
        )
    made = dataclasses.replace(
        archive,
        definition=definition,
        membership=Membership.of_new(name, draw=archive.membership.draw),
        policy=archive.policy.but(gpu_shared=()),
        budget=max(archive.budget, len(kept)),
        records=tuple(records),
        curves={numbers[old]: rows for old, rows in archive.curves.items() if old in numbers},
        verifications=(),
        notes={},
        retune=None,
    )
    return made, left_out


def _inside(
    archive: Archive, space: SearchSpace, defaults: Hyperparameters
) -> tuple[dict[int, TrialRecord], Counter[str]]:
    """Its finished trials that lie in `space`, numbered anew, by their old numbers; and the names
    that others lie outside in.
    """
    kept: dict[int, TrialRecord] = {}
    left_out = Counter[str]()
    default = configuration(defaults.as_dict())
    for record in archive.records:
        if not record.state.is_finished() or record.recorded.foreign:
            continue
        if outside := space.contains(record.params):
            left_out[outside[0].partition(" ")[0]] += 1
            continue
        recorded = dataclasses.replace(
            record.recorded,
            copied_from=f"{archive.name}, trial {record.number}",
            default=True if configuration(record.params) == default else None,
        )
        kept[record.number] = dataclasses.replace(record, number=len(kept), recorded=recorded)
    return kept, left_out


def _templates(archive: Archive) -> Iterator[FrozenTrial]:
    """The archive's trials as Optuna stores them, and numbers them: in their order."""
    stored = archive.definition.space.stored()
    target = archive.definition.target_val_loss
    for record in archive.records:
        notes = dict(archive.notes.get(record.number, {}))
        finished = record.state.is_finished()
        if not finished and record.params:
            notes["fixed_params"] = dict(record.params)
        if record.values is not None:
            violated = violations(
                archive.policy, record.values, record.recorded, target_val_loss=target
            )
            notes |= {
                f"{PREFIX}{key}": excess for key, excess in violated.items() if key != "target"
            }
        yield FrozenTrial(
            number=record.number,
            trial_id=-1,
            state=record.state,
            value=None,
            values=record.values,
            datetime_start=_moment(record.started) if finished else None,
            datetime_complete=_moment(record.ended),
            params=dict(record.params) if finished else {},
            distributions={name: stored[name] for name in record.params} if finished else {},
            user_attrs=record.recorded.to_flat(),
            system_attrs=notes,
            intermediate_values={},
        )


def _write_ours(
    connection: Connection, study_id: int, name: str, ids: Mapping[int, int], archive: Archive
) -> None:
    """Policy, device, claims, curves and verification runs, as if the trials (`ids`
    by number) had been run here.
    """
    policy = archive.policy
    if name != archive.name:  # a copy is another study: it has none of the hours that were shared
        policy = policy.but(gpu_shared=())
    told = {"policy": policy.to_json(), "device_model": archive.device_model}
    connection.execute(update(studies).where(studies.c.study_id == study_id).values(told))
    if archive.without_result_s:
        note_without_result(connection, study_id, archive.without_result_s)
    ended = [r for r in archive.records if r.state.is_finished() and not r.recorded.foreign]
    if ended:
        connection.execute(
            insert(claims),
            [_claim(record, study_id, ids[record.number], archive) for record in ended],
        )
    query = select(claims.c.trial_number, claims.c.claim_id).where(claims.c.study_id == study_id)
    claim_of = {row.trial_number: row.claim_id for row in connection.execute(query)}
    rows = [
        {
            "study_id": study_id,
            "trial_number": number,
            "claim_id": claim_of[number],
            **dataclasses.asdict(row),
        }
        for number, curve in archive.curves.items()
        for row in curve
    ]
    if rows:
        connection.execute(insert(epochs), rows)
    if archive.verifications:
        runs = [
            dataclasses.replace(
                run, study_id=study_id, plan=plan_renamed(run.plan, archive.name, name)
            )
            for run in archive.verifications
        ]
        connection.execute(insert(verifications), [recorded_row(run) for run in runs])


def _claim(record: TrialRecord, study_id: int, trial_id: int, archive: Archive) -> dict[str, Any]:
    began = _moment(record.started)
    result = TrialResult(
        record.state, record.values, record.recorded, params=dict(record.params) or None
    )
    return {
        "study_id": study_id,
        "token": uuid.uuid4().hex,
        "worker": (record.place or f"from {archive.name}")[:120],
        "state": "finished",
        "leased_until": 0.0,
        "claimed_at": began.replace(tzinfo=datetime.UTC).timestamp() if began else 0.0,
        "trial_id": trial_id,
        "trial_number": record.number,
        "result": result.to_json(),
        "told": True,
    }


def _moment(iso: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(iso) if iso else None
