"""Planning a confirmation: what each search recommends is frozen, with its margin, before the first
run; then it and the default run on seeds that nothing in the database has seen.

Searches of one variant have the same default. So that it tells something each time, each search of
a group has seeds of its own; searches with the same number in theirs share them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.config import Value
from tuner.spec.confirming import CONFIRMATION_SEEDS, LEAST_RUNS
from tuner.storage.database import initialisation_lock
from tuner.storage.queue.plans import CONFIRMATION, StoredFrozen
from tuner.study.group import Group, grouped
from tuner.study.open import OpenStudy
from tuner.study.recorded_margin import record_margin
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of, known_runs_of
from tuner.verdict.confirmation_steps import confirmation_steps
from tuner.verdict.fresh_seeds import new_seeds
from tuner.verdict.interleaving import Turn, interleaved
from tuner.verdict.known_runs import candidates_of, default_is_cut, default_of
from tuner.verdict.no_answer import NoAnswerError
from tuner.verdict.queue import verifications_of
from tuner.verdict.recommendation import model_of
from tuner.verdict.runs_model import Estimate, RunsModel
from tuner.verdict.same_quality import (
    Answer,
    offered,
    recommended,
    recommended_against,
)
from tuner.verdict.torn_confirmation import missing_runs
from tuner.verdict.verification_plan import Planned, refuse_apart

SEEDS = CONFIRMATION_SEEDS
"""Of each configuration, unless somebody says otherwise: how many it takes is in
benchmarks/verdict."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What new confirmations are planned of; and what not, and why."""

    frozen: list[_Frozen] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Frozen:
    """What a new confirmation tests of one study, and why not more."""

    study: OpenStudy
    plan: StoredFrozen
    params: Mapping[int, Mapping[str, Value]]
    cut: bool
    """The study's limit of epochs cuts off its default."""
    notes: tuple[str, ...] = ()


def plan_confirmation(
    opened: Sequence[OpenStudy],
    *,
    reference: Group[OpenStudy] | None = None,
    seeds: int = SEEDS,
    margin: float | None = None,
    shuffle_seed: int | None = None,
    still_asked: Callable[[], None] = lambda: None,
) -> Planned:
    """Plan runs of what each search recommends and of its default, on `seeds` untouched seeds each;
    and of what it offers for the quality of the reference's default.

    What was frozen stays: the same call again plans nothing new, until the search or another
    verification has gone on since. Only runs that an exported study left behind are planned again.
    The reference is that of a comparison: the first variant where none is named. Runs are in
    blocks, in which every configuration has its turn in random order. Where nothing is held against
    any default, and no reference is named, the defaults run `LEAST_RUNS` times. `still_asked`
    raises where this is asked for no more: nobody else plans or registers from then to the plan.

    Raises:
        UsageError: the studies are of different data or devices, or another margin is recorded.
    """
    groups = grouped(opened)
    if reference is None and len(groups) > 1:
        reference = groups[0]
    whole = each_once([*opened, *(reference.members if reference else ())])
    refuse_apart(whole)
    for each in opened:
        record_margin(each, margin)
    queue = verifications_of(whole)
    with initialisation_lock(opened[0].database.address):
        still_asked()
        again = queue.add(missing_runs(whole, queue.runs()))
        found = _freeze_all(opened, reference, seeds)
        if again:
            found.notes.append(f"{again} runs of a confirmation were not exported: planned again")
        if not found.frozen:
            return Planned(again, tuple(found.missing), tuple(found.notes))
        seeds = seeds if reference or _anything_to_test(found.frozen) else min(seeds, LEAST_RUNS)
        members = [*found.frozen, *_only_default(reference, found.frozen)]
        searches = sorted({each.study.membership.search for each in members})
        drawn = new_seeds(whole, seeds * len(searches))
        plan: dict[str, Any] = {
            "kind": CONFIRMATION,
            "confirms": {each.study.name: each.plan.model_dump() for each in found.frozen},
            "reference": reference.name if reference else None,
            "cut": {each.study.name: each.plan.default for each in members if each.cut},
            "seeds": seeds,
            "top": max(len(each.plan.trials()) for each in found.frozen),
            "looks": [],
            "shuffle_seed": secrets.randbits(31) if shuffle_seed is None else shuffle_seed,
        }
        of_search = {
            number: drawn[index * seeds : (index + 1) * seeds]
            for index, number in enumerate(searches)
        }
        first = max((run.place for run in queue.runs()), default=-1) + 1
        blocks = [_block(members, of_search, nth) for nth in range(seeds)]
        added = queue.add(interleaved(blocks, first=first, plan=plan))
    return Planned(again + added, tuple(found.missing), tuple(found.notes))


def _block(members: Sequence[_Frozen], seeds: Mapping[int, Sequence[int]], nth: int) -> list[Turn]:
    """Every configuration once, each on the `nth` of the seeds of its number of a search."""
    return [
        Turn(
            each.study.study_id,
            number,
            each.params[number],
            seeds[each.study.membership.search][nth],
        )
        for each in members
        for number in each.plan.trials()
    ]


def _anything_to_test(frozen: Sequence[_Frozen]) -> bool:
    """Where there is nothing, the defaults run a few times, for the record."""
    return any(each.plan.recommended is not None for each in frozen)


def each_once(studies: Sequence[OpenStudy]) -> list[OpenStudy]:
    """The studies in their order, none twice."""
    return list({each.name: each for each in studies}.values())


# -- what is frozen --------------------------------------------------------------------------------


def _freeze_all(
    opened: Sequence[OpenStudy], reference: Group[OpenStudy] | None, seeds: int
) -> _Found:
    found = _Found()
    level = snapshot(reference.members[0]).with_runs_read() if reference else None
    of_level = model_of(level) if level is not None else None
    for each in opened:
        now = snapshot(each).with_runs_read()
        there = confirmation_of(now)
        goes_on = there is not None and _goes_on(now, there, reference.name if reference else None)
        tests_nothing = there is not None and there.complete and there.default_stands
        if there is not None and goes_on and not tests_nothing:
            if there.seeds != seeds:
                found.notes.append(
                    f"{each.name}: its confirmation was planned with {there.seeds} seeds and keeps "
                    "them"
                )
            continue
        try:
            mine = _freeze(each, now, level, of_level, seeds)
        except NoAnswerError as error:
            found.missing.append(f"{each.name}: {error}")
            continue
        if goes_on and mine.plan.recommended is None:
            continue
        found.frozen.append(mine)
        found.notes.extend(mine.notes)
    return found


def _goes_on(study: StudySnapshot, there: Confirmation, reference: str | None) -> bool:
    """Whether the study's last confirmation is the one that is asked for."""
    if not there.complete:
        return True
    return reference in (None, there.reference) and there.frozen.known == known_runs_of(study)


def _freeze(
    study: OpenStudy,
    now: StudySnapshot,
    reference: StudySnapshot | None,
    of_reference: RunsModel | None,
    seeds: int,
) -> _Frozen:
    """What is to be tested of a study.

    Raises:
        NoAnswerError: nothing can be recommended of it.
    """
    model, margin = model_of(now), now.policy.counted_margin
    own = recommended(now, model, margin=margin)
    assert own.default is not None, "its own default was asked for"
    notes, at_level, offers = [], None, None
    try:
        if reference is not None:
            found = offered(now, model, reference, margin=margin, of_reference=of_reference)
            offers = tuple(each.trial for each in found)
        if reference is not None and reference.membership.group != now.membership.group:
            answer = recommended_against(
                now, model, reference, margin=margin, of_reference=of_reference
            )
            at_level = answer.chosen.trial
    except NoAnswerError as error:
        notes.append(f"{study.name}: {error}")
    steps = _steps(now, model, own, seeds)
    if not steps:
        notes.append(f"{study.name}: the default stands, so there is nothing to hold against it")
    last = confirmation_of(now)
    plan = StoredFrozen(
        default=own.default.trial,
        recommended=steps[0].trial if steps else None,
        bolder=tuple(each.trial for each in steps[1:]),
        at_level=at_level,
        offers=offers,
        margin=margin,
        chance=steps[0].chance if steps else None,
        known=known_runs_of(now),
        attempt=_attempt(last),
    )
    params = {number: now.record(number).params for number in plan.trials()}
    return _Frozen(study, plan, params, own.cut_at is not None, tuple(notes))


def _attempt(last: Confirmation | None) -> int:
    """Of how many that tested something this is the next one."""
    if last is None:
        return 1
    return last.frozen.attempt + (not last.default_stands)


def _steps(
    now: StudySnapshot, model: RunsModel | None, own: Answer, seeds: int
) -> tuple[Estimate, ...]:
    assert model is not None, "or there was no answer"
    return confirmation_steps(
        model,
        None if own.default_stands else own.chosen.trial,
        margin=own.margin,
        seeds=seeds,
        candidates=candidates_of(now),
    )


def _only_default(reference: Group[OpenStudy] | None, frozen: Sequence[_Frozen]) -> list[_Frozen]:
    """The reference's default, where the reference is confirmed by another plan or not at all."""
    if reference is None or any(each.study.name == reference.members[0].name for each in frozen):
        return []
    if not any(each.plan.at_level is not None or each.plan.offers for each in frozen):
        return []
    first = reference.members[0]
    now = snapshot(first)
    number = default_of(now)
    if number is None:
        return []
    plan = StoredFrozen(default=number, margin=now.policy.counted_margin, known=known_runs_of(now))
    return [_Frozen(first, plan, {number: now.record(number).params}, default_is_cut(now))]
