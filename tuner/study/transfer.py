"""Studies made of exported ones: as they were, or over another space."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import TrialState
from sqlalchemy import Connection, insert, update

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
from tuner.storage.optuna.private import (
    TRIALS,
    create_running,
    note,
    primary_key,
    set_parameters,
    write_result,
)
from tuner.storage.queue.claims import enqueue
from tuner.storage.queue.gpu_hours import note_without_result
from tuner.storage.queue.verifications import plan_renamed, recorded_rows
from tuner.storage.records import ORIGINS, TrialResult
from tuner.storage.schema import TRIAL, epochs, studies, work
from tuner.study.archive import Archive
from tuner.study.baselines import ATTRIBUTE
from tuner.study.code import untrusted
from tuner.study.create import begin_study
from tuner.study.open import RETUNE, OpenStudy, list_studies, open_study
from tuner.study.own_file import put_source
from tuner.study.results import TrialRecord
from tuner.study.snapshot import members_of, memberships


def restore(database: Database, archive: Archive, name: str, *, origin: str = "") -> OpenStudy:
    """A new study `name` that holds what `archive` holds, ready to be continued.

    It appears whole, or not at all. `origin` is the file that it came from, where a class that it
    names is not to be trusted yet.

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
        more: dict[str, Any] = untrusted(archive.definition, origin)
        loss = archive.definition.training.loss
        codes = {archive.definition.architecture.model: archive.code}
        if loss is not None:
            codes[loss.term] = archive.loss_code
        for reference, code in codes.items():
            if code is not None:
                location = reference.rpartition(":")[0]
                put_source(database.engine, Path(location).name, code.encode())
        policy = archive.policy
        if name != archive.name:  # another study: it has none of the hours that were shared
            policy = policy.but(gpu_shared=())
        elif archive.retune is not None:
            # Whether all of it is here, the retune finds out.
            more[RETUNE] = archive.retune.but(finished=False).as_dict()
        if archive.of_libraries:
            more[ATTRIBUTE] = [each.stored() for each in archive.of_libraries]
        with database.engine.begin() as connection:
            study_id = begin_study(
                connection, name, archive.definition, place, policy, archive.budget, **more
            )
            _write_ours(connection, study_id, name, archive)
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
    there, here = archive.definition.architecture.model, file.model
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
        of_libraries=(),
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


def _write_ours(connection: Connection, study_id: int, name: str, archive: Archive) -> None:
    """Device, trials, curves and verification runs, as if all of it had been run here."""
    here = update(studies).where(studies.c.study_id == study_id)
    connection.execute(here.values(device_model=archive.device_model))
    if archive.without_result_s:
        note_without_result(connection, study_id, archive.without_result_s)
    distributions = archive.definition.space.stored()
    for record in archive.records:
        if not record.state.is_finished():
            held = archive.definition.space.held(record.params)
            notes = _notes(record, archive)
            enqueue(connection, study_id, record.number, record.params, held, notes)
            continue
        work_id = _write_ended(connection, study_id, record, archive, distributions)
        curve = archive.curves.get(record.number)
        if curve:
            of_it = {"study_id": study_id, "trial_number": record.number, "work_id": work_id}
            rows = [of_it | dataclasses.asdict(epoch) for epoch in curve]
            connection.execute(insert(epochs), rows)
    if archive.verifications:
        runs = [
            dataclasses.replace(
                run, study_id=study_id, plan=plan_renamed(run.plan, archive.name, name)
            )
            for run in archive.verifications
        ]
        connection.execute(insert(work), [row for run in runs for row in recorded_rows(run)])


def _notes(record: TrialRecord, archive: Archive) -> dict[str, Any]:
    flat = record.recorded.to_flat()
    notes = {key: flat[key] for key in ORIGINS if key in flat}
    return notes | dict(archive.notes.get(record.number, {}))


def _write_ended(
    connection: Connection,
    study_id: int,
    record: TrialRecord,
    archive: Archive,
    distributions: Mapping[str, BaseDistribution],
) -> int | None:
    """A trial with its result, told to Optuna; the number of its work, None of another program's
    trial, which keeps its number alone.
    """
    notes, began = _notes(record, archive), _moment(record.started)
    ended = _moment(record.ended)
    result = TrialResult(record.state, record.values, record.recorded)
    if record.values is not None:
        beyond = violations(archive.policy, record.values, record.recorded)
        result = dataclasses.replace(result, constraints=beyond)
    trial_id = create_running(connection, study_id, record.number)
    set_parameters(connection, trial_id, record.params, distributions)
    note(connection, trial_id, notes)
    write_result(connection, trial_id, result, found=TrialState.RUNNING)
    times = {"datetime_start": began, "datetime_complete": ended}
    connection.execute(update(TRIALS).where(TRIALS.c.trial_id == trial_id).values(times))
    if record.recorded.foreign:
        return None
    row = {
        "study_id": study_id,
        "kind": TRIAL,
        "state": "finished",
        "trial_id": trial_id,
        "trial_number": record.number,
        "params": json.dumps(dict(record.params)),
        "notes": json.dumps(notes),
        "worker": (record.place or f"from {archive.name}")[:120],
        "claimed_at": _seconds(began) or 0.0,
        "ended_at": _seconds(ended),
        "result": result.to_json(),
        "told": True,
    }
    return primary_key(connection.execute(insert(work).values(row)))


def _moment(iso: str | None) -> datetime.datetime | None:
    """As Optuna stores it: in UTC, which is not said. Records have it so, too."""
    return None if iso is None else datetime.datetime.fromisoformat(iso)


def _seconds(moment: datetime.datetime | None) -> float | None:
    return None if moment is None else moment.replace(tzinfo=datetime.UTC).timestamp()
