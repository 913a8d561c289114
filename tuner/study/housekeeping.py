"""Renaming, deleting and repairing whole studies: all of one that the database has."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from tuner.errors import StorageError, TunerError, UsageError, unknown_name
from tuner.files.plain import UNREADABLE
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.check import changed_trials, orphaned, restore, save
from tuner.storage.database import Database, initialisation_lock, open_database
from tuner.storage.dialects import database_now
from tuner.storage.optuna import private as optuna_rows
from tuner.storage.optuna.private import STUDIES, STUDY_USER, ids_of, names_by_id
from tuner.storage.optuna.trials import user_attributes
from tuner.storage.queue.gpu_hours import DeviceTimes, note_without_result
from tuner.storage.queue.roster import SILENT_AFTER_S
from tuner.storage.queue.verifications import plan_renamed, read_plan
from tuner.storage.records import damage_named
from tuner.storage.schema import OF_A_VARIANT, RUN, forget_study, sources, studies, work, workers
from tuner.storage.url import DatabaseUrl
from tuner.study.create import MEMBERSHIP
from tuner.study.open import MADE_AS, list_studies, open_study, stored_key
from tuner.study.snapshot import PREFIX, members_of, memberships

Policies = dict[int, tuple[str, SearchPolicy]]
"""What the studies of variants are searched by, by their numbers, with their names."""


def delete_studies(database: Database, names: Collection[str]) -> list[str]:
    """Delete all that the database has of these studies; or nothing, whatever fails. Hours that
    they have had of a limit which others share stay spent. What is left to do is with files: see
    the keys that this returns.

    Raises:
        UsageError: one of them is not there, is not of tuner's making, is at work, or is the first
            of a group of which others would be left.
        StorageError: the hours of one that shares some cannot be read.
        DBAPIError: the database is away; nothing is deleted then, or all.
    """
    known = memberships(database)
    with initialisation_lock(database.address), database.engine.begin() as connection:
        for name in names:
            group = members_of(known, name).values()
            if left := [each for each in group if each not in names]:
                more = f"{', '.join(left)} would be left; delete all of them: {PREFIX}{name}"
                raise UsageError(f"study {name!r} is the first of its group, and {more}")
        policies = _policies(connection)
        sharing = _sharing(policies, names)
        found = _locked(connection, names, sharing)
        keys = [_key(connection, each) for each in found]
        _leave_hours(connection, policies, sharing, found)
        for each in found:
            optuna_rows.delete_study(connection, each.study_id)
            schema.forget_study(connection, each.study_id)
        _forget_sources(connection, [each.definition for each in found])
    return keys


def rename_study(database: Database, old: str, new: str) -> None:
    """Let the study `old` be called `new`, and whatever refers to it follow: its group where that
    is called as it is, limits of device hours, and plans of verifications. Its seeds, checkpoints
    and results that wait for delivery stay those of the name that it was made by, on every host.
    What its trials say of where they come from stays as it was said.

    Raises:
        UsageError: it is not there or at work, or `new` is there.
        DBAPIError: the database is away.
    """
    with initialisation_lock(database.address):
        known = memberships(database)
        if old not in known:
            raise unknown_name("study", old, list_studies(database))
        if new in {each.group for each in known.values()}:
            raise UsageError(f"{new!r} is a study or a group of searches here; name it otherwise")
        leads = known[old].group == old
        with database.engine.begin() as connection:
            policies = _policies(connection)
            (mine,) = _locked(connection, [old], [*_sharing(policies, [old])])
            if ids_of(connection, [new]):
                raise UsageError(f"there is a study {new!r} already; name it otherwise")
            row = STUDIES.c.study_id == mine.study_id
            connection.execute(update(STUDIES).where(row).values(study_name=new))
            made_as = {MADE_AS: _key(connection, mine).rpartition("@")[0]}
            optuna_rows.set_of_study(connection, mine.study_id, made_as, STUDY_USER)
            for study_id, (_, policy) in policies.items():
                shared = tuple(new if each == old else each for each in policy.gpu_shared)
                against = new if leads and policy.against == old else policy.against
                _tell(connection, study_id, policy, policy.but(gpu_shared=shared, against=against))
            for name in members_of(known, old).values() if leads else ():
                place = {MEMBERSHIP: known[name].model_copy(update={"group": new}).model_dump()}
                (study_id,) = ids_of(connection, [new if name == old else name])
                optuna_rows.set_of_study(connection, study_id, place, STUDY_USER)
            for work_id, _, plan in _plans_naming(connection, old):
                changed = plan_renamed(plan, old, new)
                if leads and changed.get("reference") == old:
                    changed["reference"] = new
                text = json.dumps(changed, sort_keys=True)
                run = work.c.work_id == work_id
                connection.execute(update(work).where(run).values(plan=text))


def referring(database: Database, name: str) -> list[str]:
    """Who refers to a study, in words."""
    with database.engine.connect() as connection:
        policies, names = _policies(connection), names_by_id(connection)
        lines = [f"shares hours with {names[each]}" for each in _sharing(policies, [name])]
        for other, policy in policies.values():
            if policy.against == name:
                lines.append(f"{other} looks for its default's quality")
        verified = {names.get(study_id, name) for _, study_id, _ in _plans_naming(connection, name)}
        return [*lines, *(f"verified with {each}" for each in sorted(verified - {name}))]


def _policies(connection: Connection) -> Policies:
    """What cannot be read is left out: it says nothing of others. It is changed under the
    initialisation lock alone.
    """
    names, found = names_by_id(connection), Policies()
    query = select(studies.c.study_id, studies.c.policy).where(OF_A_VARIANT)
    for study_id, text in connection.execute(query.order_by(studies.c.study_id)).all():
        if study_id in names:
            with contextlib.suppress(StorageError):
                found[study_id] = names[study_id], SearchPolicy.from_json(text)
    return found


def _sharing(policies: Policies, names: Collection[str]) -> list[int]:
    """The numbers of other studies that share a limit of device hours with one of these."""
    limits = [policy.gpu_shared for name, policy in policies.values() if name in names]
    together = {name for limit in limits for name in limit}
    return [
        study_id
        for study_id, (name, policy) in policies.items()
        if name not in names and (name in together or set(names) & set(policy.gpu_shared))
    ]


def _locked(connection: Connection, names: Collection[str], beside: Sequence[int]) -> list[Any]:
    """The rows of these studies, of which nobody claims anything until the transaction is over;
    those with the numbers `beside` are held, too, in the order in which all hold several.

    Raises:
        UsageError: one is not there, not of tuner's making, or somebody is at work on it.
    """
    s = studies.c
    both = optuna_rows.beside_study(studies, s.study_id)
    query = select(*s, STUDIES.c.study_name).select_from(both)
    meant = STUDIES.c.study_name.in_(names) | s.study_id.in_(beside)
    rows = connection.execute(query.where(meant).order_by(s.study_id).with_for_update()).all()
    found = [each for each in rows if each.study_name in names]
    for name in names:
        if name in {each.study_name for each in found}:
            continue
        if ids_of(connection, [name]):
            raise UsageError(f"study {name!r} was not made by tuner; see optuna.delete_study")
        raise unknown_name("study", name, names_by_id(connection).values())
    for each in found:
        _refuse_at_work(connection, each)
    return found


def _refuse_at_work(connection: Connection, study: Any) -> None:
    """Raises UsageError where somebody has work of a locked study, or has signed in to it."""
    c, w = work.c, workers.c
    open_ = (c.study_id == study.study_id) & c.state.in_(("waiting", "running"))
    held = select(c.worker, c.state, (c.leased_until - database_now()).label("left_s"))
    rows = connection.execute(held.where(open_).with_for_update())  # claims are waited for
    at_work = [row.worker for row in rows if row.state == "running" and row.left_s > 0]
    lately = database_now() - w.seen_at < SILENT_AFTER_S
    here = (w.study_id == study.study_id) & w.stopped.is_(False) & lately
    at_work += connection.execute(select(w.worker).where(here).order_by(w.worker)).scalars()
    if at_work:
        raise UsageError(
            f"study {study.study_name!r}: {at_work[0]} is at work on it; end that first (of one "
            f"that was killed, {SILENT_AFTER_S / 60:.0f} minutes are waited for)"
        )


def _key(connection: Connection, study: Any) -> str:
    attributes = user_attributes(connection, study.study_id) or {}
    return stored_key(study.study_name, attributes, study.created_at)


def _tell(connection: Connection, study_id: int, before: SearchPolicy, after: SearchPolicy) -> None:
    if after != before:
        mine = studies.c.study_id == study_id
        connection.execute(update(studies).where(mine).values(policy=after.to_json()))


def _leave_hours(
    connection: Connection, policies: Policies, sharing: Sequence[int], gone: Sequence[Any]
) -> None:
    """What the studies that are to go have had of shared hours is the first other one's from now
    on: who deletes a study is not given its hours again.
    """
    names = {each.study_name for each in gone}
    for study_id in sharing:
        _, policy = policies[study_id]
        left = tuple(each for each in policy.gpu_shared if each not in names)
        _tell(connection, study_id, policy, policy.but(gpu_shared=left if len(left) > 1 else ()))
    for each in gone:
        heirs = [i for i in sharing if each.study_name in policies[i][1].gpu_shared]
        if heirs:
            took_s = DeviceTimes().seconds(connection, work.c.study_id == each.study_id)
            note_without_result(connection, heirs[0], took_s)


def _forget_sources(connection: Connection, gone: Sequence[str]) -> None:
    """Delete the files of users' own that only these definitions name."""
    left = connection.execute(select(studies.c.definition)).scalars().all()
    for digest in connection.execute(select(sources.c.sha256)).scalars().all():
        if any(digest in each for each in gone) and not any(digest in each for each in left):
            connection.execute(delete(sources).where(sources.c.sha256 == digest))


def _plans_naming(connection: Connection, name: str) -> list[tuple[int, int, dict[str, Any]]]:
    """The verification runs whose plan names a study, or a group, with the study of each."""
    c, found = work.c, []
    rows = select(c.work_id, c.study_id, c.plan).where(c.kind == RUN)
    for work_id, study_id, text in connection.execute(rows).all():
        with contextlib.suppress(*UNREADABLE):
            plan = read_plan(text)
            if plan_renamed(plan, name, "") != plan or plan.get("reference") == name:
                found.append((work_id, study_id, plan))
    return found


# What other programs did to our studies is put right; it says what it does, and nothing computed is
# lost by it.


def repair(address: DatabaseUrl, folder: Path) -> tuple[str, ...]:
    """Restore Optuna's record of our trials from our own,
    and clear away what is left of deleted studies.

    What is left of a deleted study is first written to a file in `folder`. Trials of other programs
    stay as they are.

    Returns:
        What was done, a sentence each; empty when there was nothing to do.

    Raises:
        StorageError: the database cannot be reached or changed, or the file not be written.
    """
    database = open_database(address, create=False)
    try:
        done = []
        for name in list_studies(database):
            done += _tell_and_put_back(database, name)
        with database.engine.begin() as connection:
            names = names_by_id(connection)
            for changed in list(changed_trials(connection)):
                trial = f"{names.get(changed.study_id)} trial {changed.number}"
                if restore(connection, changed):
                    done.append(f"restored {trial}: {changed.what}")
                else:
                    done.append(
                        f"left {trial} without a row of Optuna's: another trial has its number; "
                        "its result stays in tuner's record"
                    )
        return (*done, *_clear_away(database, folder))
    finally:
        database.close()


def _tell_and_put_back(database: Database, name: str) -> list[str]:
    """What any launch does first; nothing where the study is damaged."""
    try:
        opened = open_study(database, name)
        with damage_named(database.engine, opened.study_id):
            opened.ledger.settle()
            strays = opened.ledger.return_strays()
    except TunerError as error:
        return [f"left {name} as it is: {error}"]
    return [f"put back {strays} trials of {name} that ran for nobody"] if strays else []


def _clear_away(database: Database, folder: Path) -> list[str]:
    """Save and remove what is left of deleted studies."""
    done = []
    with database.engine.connect() as connection:
        found = orphaned(connection)
    for orphan in found:
        if orphan.running:
            done.append(
                f"left {orphan.described}: {orphan.running} runs are still at work; repair again "
                "after them"
            )
            continue
        with database.engine.begin() as connection:
            path = save(connection, orphan, folder)
            forget_study(connection, orphan.study_id)
        done.append(f"removed what was left of {orphan.described}, all of it saved to {path}")
    return done
