"""A launch of studies that may be there already: what it says is done, what it does not say stays
as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState
from sqlalchemy import select, update

from tuner.config import MqlSplit
from tuner.devices.gpu import of_several
from tuner.display.text import command_line, option
from tuner.errors import StorageError, TunerError, UsageError
from tuner.record import Recorded
from tuner.search.history import configuration, known_params
from tuner.search.methods import prunes
from tuner.settings import changes, differing
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.objectives import violations
from tuner.spec.policy import SearchPolicy, StudySettings, resumed
from tuner.storage.database import Database, initialisation_lock
from tuner.storage.optuna.private import names_by_id, replace_constraints
from tuner.storage.schema import studies
from tuner.study.open import (
    MADE_AS,
    OpenStudy,
    attributes_of_studies,
    check_resumable,
    create_or_resume,
    list_studies,
    open_study,
    refuse_other_margin,
)
from tuner.study.snapshot import StudySnapshot, asked_searches, memberships, snapshot_named

# Which studies share a limit of device hours: those that any launch has limited together, until
# one lifts it.


def share_launched_hours(studies: Sequence[OpenStudy], said: Mapping[str, Any]) -> list[str]:
    """The studies of one launch share the limit that it `said`, with all that shared one with any
    of them; a new search of a group that has one is paid by the same hours. Lines for the person
    who launches.

    To be called under the initialisation lock.
    """
    database, names = studies[0].database, [each.name for each in studies]
    if "max_gpu_s" in said:
        limit = said["max_gpu_s"]
        together = share_hours(database, names, limit)
        others = [name for name in together if name not in names]
        if not others:
            return []
        what = "is lifted for" if limit is None else "holds for"
        theirs = ", ".join(name for name in names if name in together)
        why = f"an earlier launch had them share a limit with {theirs}"
        return [f"--max-gpu-hours {what} {', '.join(others)} as well: {why}"]
    for each in studies:
        policy = each.policy()
        if (
            policy.max_gpu_s is not None
            and policy.gpu_shared
            and each.name not in policy.gpu_shared
        ):
            share_hours(database, [each.name], policy.max_gpu_s)
    return []


def share_hours(
    database: Database, names: Collection[str], seconds: float | None
) -> tuple[str, ...]:
    """Limit the studies of these names, and all that share a limit with one of them, to so many
    seconds together; None lifts the limit of all. Their names, the oldest first.

    To be called under the initialisation lock.

    Raises:
        StorageError: the policy of one of them cannot be read.
    """
    with database.engine.begin() as connection:
        by_id = names_by_id(connection)
        query = select(studies.c.study_id, studies.c.policy).order_by(studies.c.study_id)
        rows = connection.execute(query.with_for_update()).all()
        stored = {by_id[row.study_id]: row for row in rows if row.study_id in by_id}
        policies: dict[str, SearchPolicy] = {}
        for name, row in stored.items():
            try:
                policies[name] = SearchPolicy.from_json(row.policy, name)
            except StorageError:
                if name in names:
                    raise  # that of a study that nobody named says nothing
        together = _together(policies, names)
        shared = together if seconds is not None and len(together) > 1 else ()
        for name in together:
            before = policies[name]
            after = before.but(max_gpu_s=seconds, gpu_shared=shared)
            if after != before:
                mine = studies.c.study_id == stored[name].study_id
                connection.execute(update(studies).where(mine).values(policy=after.to_json()))
    return together


def _together(policies: Mapping[str, SearchPolicy], names: Collection[str]) -> tuple[str, ...]:
    """All studies that are there and share a limit with one of these, and these: who shares one
    knows all that do.
    """
    meant = set(names) & policies.keys()
    meant |= {other for name in meant for other in policies[name].gpu_shared}
    return tuple(name for name, each in policies.items() if {name, *each.gpu_shared} & meant)


# What a launch says of a study that was there: what stays as it was, and what changes.


def lowered(study: OpenStudy, before: int | None) -> list[str]:
    """What a lower budget means for others who are at work on the study."""
    counts = study.ledger.counts()
    if before is None or counts.budget >= before:
        return []
    others = len(study.roster.working())
    line = f"{study.name}: --trials lowers its budget from {before} to {counts.budget}"
    if others:
        who = "1 other worker is" if others == 1 else f"{others} other workers are"
        line += f"; {who} at work on it, and will end once it is filled"
    return [line]


def in_words(
    study: OpenStudy,
    fresh: StudyDefinition,
    before: SearchPolicy,
    after: SearchPolicy,
    said: Collection[str],
) -> list[str]:
    """What a study that was there keeps although a new one
    would not have it, and what of its policy changed; `said` are the fields of it that a launch
    named.
    """
    there = StudySettings.of(study.definition).in_flags()
    own, new = after.in_flags(), StudySettings.of(fresh).in_flags()
    kept = [flag for name, flag in there.items() if flag != new[name]]
    kept += [own[name] for name in differing(SearchPolicy(), after) if name not in said]
    changed = changes(before, after)
    pruned, prunes_now = (prunes(each.sampler, each.prune) for each in (before, after))
    if "prune" not in said and pruned != prunes_now:
        changed.append("pruning to no pruning" if pruned else "no pruning to pruning")
    lines = [f"{study.name} changes from {', from '.join(changed)}"] if changed else []
    return [*lines, f"{study.name} keeps {' '.join(kept)}"] if kept else lines


# Beginning a study with what others found: the configurations of their fronts.


def fronts_of(database: Database, names: str) -> tuple[StudySnapshot, ...]:
    """Studies with a front, `NAME[,NAME]`, as `snapshot_named` understands each name.

    Raises:
        UsageError: no such study or file.
        TunerError: a study without a finished trial.
    """
    fronts = []
    for name in (part.strip() for part in names.split(",")):
        if not name:
            raise UsageError(
                f"--warm-start: {names!r} holds an empty name; expected e.g. "
                "etth-original,etth-simple"
            )
        found = snapshot_named(name, lambda: database)
        if not found.results.front:
            raise TunerError(
                f"--warm-start: study {name!r} has no finished trial to begin with yet"
            )
        fronts.append(found)
    return tuple(fronts)


def refuse_what_saw_last_block(
    definition: StudyDefinition, fronts: Sequence[StudySnapshot]
) -> None:
    """Raises UsageError where a study keeps its last block of the test split, and a front was
    chosen by that block of the same data.
    """
    for front in fronts:
        theirs = front.definition
        saw = theirs.mql_split == MqlSplit.TEST and theirs.data_hash == definition.data_hash
        if definition.keeps_last_block and saw:
            raise UsageError(
                f"--warm-start: study {front.name!r} chose by the whole test split, of which "
                f"--mql-split {MqlSplit.ORIGINS} keeps the last block unseen; expected a study "
                "searched with --mql-split origins or val"
            )


def warm_start_with(opened: OpenStudy, fronts: Sequence[StudySnapshot]) -> str:
    """Enqueue the configurations of `fronts` that the study has not had, moved into its space; says
    what it did.

    Doing it again adds nothing.
    """
    space, default = opened.definition.space, opened.definition.defaults.as_dict()
    had = {
        configuration(params)
        for trial in opened.optuna.get_trials(deepcopy=False)
        if (params := known_params(trial, space))
    }
    added = moved = 0
    for front in fronts:
        for record in front.results.front:
            params = space.nearest(record.params, default)
            if configuration(params) in had:
                continue
            had.add(configuration(params))
            changed = configuration(params) != configuration(record.params)
            origin = f"{front.name}, trial {record.number}" + (
                ", moved into the space" if changed else ""
            )
            opened.enqueue(params, warm_start=origin)
            added, moved = added + 1, moved + changed
    total = sum(len(front.results.front) for front in fronts)
    names = ", ".join(front.name for front in fronts)
    return (
        f"{opened.name} tries {added} of the {total} front configurations of {names} first"
        + (f" ({moved} moved into its space)" if moved else "")
        + ("" if added == total else "; it has had the others")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What somebody said with a launch; what is absent was not said."""

    trials: int | None = None
    searches: int | None = None
    draw: int | None = None
    definition: Collection[str] = ()
    """Names of settings that are part of what a study is: `max_epochs`, `seeds`, `backend`, ..."""
    policy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of a `SearchPolicy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A study that is ready to run."""

    study: OpenStudy
    changed: Mapping[str, Mapping[str, Any]]
    """Fields of its policy that were other before: `{"prune": {"from": True, "to": False}}`."""
    budget: int
    """Of finished trials, as this launch has it."""
    notes: tuple[str, ...] = ()
    """Lines for the person who launched it: what stays, what changed, what is tried first."""


def open_studies(
    database: Database,
    asked: Mapping[str, StudyDefinition],
    said: Said,
    *,
    device_model: str | None,
    warm_start: str | None = None,
) -> list[Launched]:
    """The studies that are `asked` for, created or resumed; nothing is written before all of them
    can be.

    Each name is that of a group, of which a launch makes as many searches as were said: see
    `asked_searches`. A new search of a group begins with the settings of the first one.

    From the look at what is there to the last change it is one step: a launch of the same studies
    at the same moment comes wholly before or after it, finds what the other made and did, and says
    what it changes of that.

    Raises:
        UsageError: a study of that name is another one, or of another device; `warm_start` names no
            study.
    """
    with initialisation_lock(database.address):
        plans = _planned(database, asked, said)
        for plan in plans:
            model = device_model
            if model is not None:
                model = of_several(model, plan.definition.training.gpus_per_trial)
            if plan.like is not None and model is not None:  # a new search's budget is not full
                plan.like.refuse_other_device(model)
            check_resumable(
                database, plan.name, plan.definition, trials=plan.trials, device_model=model
            )
            if plan.budget is not None and "margin" in said.policy:
                refuse_other_margin(open_study(database, plan.name), said.policy["margin"])
        fronts = fronts_of(database, warm_start) if warm_start is not None else ()
        for plan in plans:
            refuse_what_saw_last_block(plan.definition, fronts)
        studies = [
            create_or_resume(
                database,
                plan.name,
                plan.definition,
                trials=plan.trials,
                membership=plan.place,
                policy=_first_policy(plan.like, said),
            )
            for plan in plans
        ]
        launched = [
            _launched(plan, study, said, fronts) for plan, study in zip(plans, studies, strict=True)
        ]
        if launched and (lines := share_launched_hours(studies, said.policy)):
            last = launched[-1]
            launched[-1] = dataclasses.replace(last, notes=(*last.notes, *lines))
        return launched


def _first_policy(like: OpenStudy | None, said: Said) -> SearchPolicy:
    """What a new study has from its first moment on, so that no worker sees it otherwise. It begins
    as the first search of its group, `like`, whose device hours are its hours, too.
    """
    policy = like.policy() if like is not None else SearchPolicy()
    if like is not None and policy.max_gpu_s is not None:
        policy = policy.but(gpu_shared=policy.gpu_shared or (like.name,))
    return policy.but(**said.policy)


def _launched(
    plan: _Plan, study: OpenStudy, said: Said, fronts: Sequence[StudySnapshot]
) -> Launched:
    """The study with what was said of it."""
    if study.membership != plan.place:
        raise UsageError(
            f"study {study.name!r} was made meanwhile, and is no search of group "
            f"{plan.place.group!r}; choose another name with --study NAME"
        )
    before, after = change_policy(study, said.policy)
    notes = list(plan.notes)
    other: list[str] = []
    if plan.budget is not None:
        other = differing(before, after)
        notes += in_words(study, plan.fresh, before, after, said.policy)
    notes += lowered(study, plan.budget)
    if fronts:
        notes.append(warm_start_with(study, fronts))
    changed = {name: {"from": getattr(before, name), "to": getattr(after, name)} for name in other}
    budget = study.ledger.counts().budget
    return Launched(study=study, changed=changed, budget=budget, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A study to create or to go on with."""

    name: str
    place: Membership
    definition: StudyDefinition
    fresh: StudyDefinition
    """As a new study would be that nobody said more of."""
    trials: int | None
    """What its budget is to be; None: as it is."""
    budget: int | None
    """What it was; None for a new study."""
    like: OpenStudy | None
    """The search of its group whose settings it begins with; None where it is not new, or the
    first."""
    notes: tuple[str, ...]


def _planned(database: Database, asked: Mapping[str, StudyDefinition], said: Said) -> list[_Plan]:
    known, there = memberships(database), set(list_studies(database))
    plans: dict[str, _Plan] = {}
    for group, fresh in asked.items():
        meant = asked_searches(known, group, said.searches, said.draw)
        first = open_study(database, meant.like) if meant.like is not None else None
        notes = meant.notes if first else (*meant.notes, *_called_otherwise(database, group))
        for name, place in meant.places.items():
            if name in plans:
                raise UsageError(
                    f"study {name!r} would be a search of group {plans[name].place.group!r} and of "
                    f"{group!r}; launch them one by one, with --study NAME"
                )
            own = open_study(database, name) if name in there else None
            model = own or first
            definition = resumed(model.definition, fresh, said.definition) if model else fresh
            before = own.definition.training.max_epochs if own else math.inf
            if (limit := definition.training.max_epochs) > before:
                notes = (*notes, f"{name} runs again up to {limit} epochs what {before} cut off")
            trials = said.trials
            if own is None and first is not None and trials is None:
                trials = first.ledger.counts().budget
            plans[name] = _Plan(
                name=name,
                place=place,
                definition=definition,
                fresh=fresh,
                trials=trials,
                budget=own.ledger.counts().budget if own is not None else None,
                like=first if own is None else None,
                notes=notes,
            )
            notes = ()
    return list(plans.values())


def _called_otherwise(database: Database, group: str) -> list[str]:
    """What to say of a study that begins under the name that others had before."""
    return [
        f"{group} begins anew: the study that was called so is {name!r} now, and 'tuner launch' "
        f"goes on with it by {command_line(option('--study', name))}"
        for name, attributes in attributes_of_studies(database).items()
        if attributes.get(MADE_AS) == group and name != group
    ]


def change_policy(study: OpenStudy, said: Mapping[str, Any]) -> tuple[SearchPolicy, SearchPolicy]:
    """Change the fields of the study's policy that `said` names; the policy before and after.

    Running workers follow with their next trial. Where a limit changed, finished trials are judged
    by the new ones.

    To be called under the initialisation lock: another launch may be changing another field.
    """
    before = study.policy()
    after = before.but(**said)
    if after == before:
        return before, after
    study.set_policy(after)
    if {"max_time_s", "max_mql", "max_memory_bytes"} & set(differing(before, after)):
        judged = {
            trial.number: violations(
                after, (trial.values[0], trial.values[1]), Recorded.from_flat(trial.user_attrs)
            )
            for trial in study.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        }
        replace_constraints(study.database.engine, study.study_id, judged)
    return before, after
