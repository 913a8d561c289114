"""Planning a confirmation: what each search recommends is frozen, with its margin, before the first
run; then it and the default run on seeds that nothing in the database has seen.

It looks after a third of its seeds and after two; what is decided then runs no more, and what has
no chance left runs no more either. So the same call goes on, look after look.

All run on the same seeds, and searches of one variant have the same default. So it runs once: what
the first of them has run, the others take over, as runs that took no device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.config import Value
from tuner.spec.margin import CONFIRMATION_SEEDS, LEAST_RUNS, NO_LOSS, STEPS, Question, looks_of
from tuner.storage.database import initialisation_lock
from tuner.storage.queue.verifications import (
    CONFIRMATION,
    PlannedRun,
    StoredFrozen,
    StoredPlan,
    VerificationRun,
    is_confirmation,
)
from tuner.study.open import OpenStudy, record_margin
from tuner.study.snapshot import Group, StudySnapshot, grouped, snapshot
from tuner.verdict.confirmation import (
    Confirmation,
    Looks,
    confirmation_in,
    confirmation_of,
    default_runs,
    known_runs_of,
    tested,
    tested_apart,
)
from tuner.verdict.known_runs import candidates_of, default_is_cut, default_of
from tuner.verdict.recommendation import NoAnswerError, model_of
from tuner.verdict.runs_model import Estimate, Quality, RunsModel
from tuner.verdict.same_quality import quality_of, recommended
from tuner.verdict.verification_plan import (
    Planned,
    Turn,
    add_session,
    interleaved,
    new_seeds,
    refuse_apart,
)
from tuner.verdict.verified import as_configurations, verifications_of

# Which configurations of a search are confirmed, and in which order.


Array = np.ndarray[Any, Any]

LEAST_CHANCE = 0.5
"""What is confirmed is at least as probably within the margin as not."""
LEAST_GAIN = 0.01
"""Of the logarithm of time: what a further step must be expected to add, for it costs runs."""

_DRAWS = 1000
_SEED = 20261124
_SHORT_LIST = 40
"""Of candidates, those that are worth most by themselves."""


def confirmation_steps(
    model: RunsModel,
    first: int | None,
    *,
    margin: float,
    seeds: int = CONFIRMATION_SEEDS,
    most: int = STEPS,
    candidates: Collection[int] | None = None,
    level: Quality | None = None,
) -> tuple[Estimate, ...]:
    """What is to be tested, in this order; empty where nothing is expected to be shown.

    Args:
        model: of the study's runs.
        first: the trial that is recommended, which is among them; None where none is.
        margin: how much higher an MQL may be, relative.
        seeds: of the confirmation.
        most: how many at most.
        candidates: trials that may be recommended; all where None.
        level: what they are held against; None: the study's own default.

    Raises:
        ValueError: the default configuration is not among the runs.
    """
    if level is None:
        chances, may = model.chance_of_default(margin), model.faster(candidates)
    else:
        chances = model.chance_of_level((1 + margin) * level.mql, error=level.error)
        may = model.among(candidates)
    may &= chances >= LEAST_CHANCE
    saved, claims = model.drawn_confirmations(margin, seeds, _DRAWS, _SEED, level)
    alone = (saved * claims).mean(axis=0)
    rows = [row for row in np.argsort(-alone, kind="stable").tolist() if may[row]][:_SHORT_LIST]
    steps = [] if first is None else [model.trials.index(first)]
    if level is not None:  # what is recommended otherwise need not be as good as that
        steps = [row for row in steps if may[row]]
    expected = _expected(saved, claims, steps)
    while len(steps) < most:
        more = [
            [*steps[:place], row, *steps[place:]] for row in rows for place in range(len(steps) + 1)
        ]
        longer = [each for each in more if len(set(each)) > len(steps)]
        if not longer:
            break
        best = max(longer, key=lambda each: _expected(saved, claims, each))
        gained = _expected(saved, claims, best) - expected
        if gained < LEAST_GAIN:
            break
        steps, expected = best, expected + gained
    return tuple(model.estimate(model.trials[row], chances) for row in steps)


def _expected(saved: Array, claims: Array, steps: Sequence[int]) -> float:
    """Of the logarithm of the time that is saved in the end, over draws: (draws, configurations)
    each.
    """
    found, going_on = np.zeros(len(saved)), np.ones(len(saved), dtype=bool)
    for row in steps:
        going_on = going_on & claims[:, row]
        found = np.where(going_on, saved[:, row], found)
    mean = float(found.mean())
    assert math.isfinite(mean), "times are finite"
    return mean


# What a confirmation still has to run: what its next look asks for, and what is not there of its
# looks so far, as an exported study holds only the runs that ended.


def missing_runs(
    opened: Sequence[OpenStudy], everything: Sequence[VerificationRun]
) -> list[PlannedRun]:
    """The runs that the studies' confirmations ask for and that are not there.

    Args:
        opened: studies, each once.
        everything: their verification runs, in the order of the plan.
    """
    first = max((run.place for run in everything), default=-1) + 1
    found: list[PlannedRun] = []
    for session, runs in _confirmations(everything).items():
        blocks = _missing(opened, runs)
        plan = runs[0].plan
        found += interleaved(blocks, first=first + len(found), plan=plan, session=session)
    return found


def _confirmations(everything: Sequence[VerificationRun]) -> dict[str, list[VerificationRun]]:
    """Their runs, by session."""
    sessions: dict[str, list[VerificationRun]] = {}
    for run in everything:
        if is_confirmation(run.plan):
            sessions.setdefault(run.session, []).append(run)
    return sessions


def _missing(opened: Sequence[OpenStudy], runs: Sequence[VerificationRun]) -> list[list[Turn]]:
    """What each block lacks and nobody else runs for it."""
    there = {(run.study_id, run.trial_number, run.block) for run in runs}
    by_name = {study.name: study for study in opened}
    asked = _wanted(opened, runs)
    seeds = _seeds(opened, runs)
    first_of = _defaults_of_first(opened, runs) if _share_seeds(seeds) else {}
    lacking: dict[tuple[str, int, int], OpenStudy] = {}
    for each, count in asked.items():
        name, trial = first_of.get(each, each)
        for block in range(count):
            if (by_name[name].study_id, trial, block) not in there:
                lacking[name, trial, block] = by_name[name]
    seeds |= _new_seeds_for(opened, seeds, lacking)
    configurations = {study.study_id: snapshot(study) for study in lacking.values()}
    blocks: list[list[Turn]] = [[] for _ in range(max(asked.values(), default=0))]
    for (_, trial, block), study in lacking.items():
        seed = seeds[study.membership.search, block]
        params = configurations[study.study_id].record(trial).params
        blocks[block].append(Turn(study.study_id, trial, params, seed))
    return blocks


_Seeds = dict[tuple[int, int], int]
"""Of blocks, by a search's number and the block's."""


def _share_seeds(seeds: _Seeds) -> bool:
    """Whether all searches have the same seeds; not in what was planned before defaults were
    shared.
    """
    of_block: dict[int, set[int]] = {}
    for (_, block), seed in seeds.items():
        of_block.setdefault(block, set()).add(seed)
    return all(len(each) == 1 for each in of_block.values())


def _new_seeds_for(
    opened: Sequence[OpenStudy], seeds: _Seeds, lacking: Mapping[tuple[str, int, int], OpenStudy]
) -> _Seeds:
    """Of what has no seed yet: that of its block where all share it."""
    wanted = {(study.membership.search, block) for (_, _, block), study in lacking.items()}
    wanted -= set(seeds)
    if not _share_seeds(seeds):
        return dict(zip(sorted(wanted), new_seeds(opened, len(wanted)), strict=True))
    of_block = {block: seed for (_, block), seed in seeds.items()}
    new = sorted({block for _, block in wanted} - set(of_block))
    of_block |= dict(zip(new, new_seeds(opened, len(new)), strict=True))
    return {(search, block): of_block[block] for search, block in wanted}


def _defaults_of_first(
    opened: Sequence[OpenStudy], runs: Sequence[VerificationRun]
) -> dict[_Asked, _Asked]:
    """By the default of each search that a plan confirms, that of the first search of its group."""
    plan = StoredPlan.model_validate(runs[0].plan)
    mine = [each for each in opened if each.name in plan.confirms]
    first: dict[str, _Asked] = {}
    found = {}
    for each in sorted(mine, key=lambda one: one.membership.search):
        default = each.name, plan.confirms[each.name].default
        found[default] = first.setdefault(each.membership.group, default)
    return found


def taken_over(
    opened: Sequence[OpenStudy], everything: Sequence[VerificationRun]
) -> list[VerificationRun]:
    """Runs of the default that the first search of a group has made, for the others of its group
    that lack them. They took no device.
    """
    by_name = {study.name: study for study in opened}
    found = []
    for runs in _confirmations(everything).values():
        if not _share_seeds(_seeds(opened, runs)):
            continue
        there = {(run.study_id, run.trial_number, run.block) for run in runs}
        for (name, trial), (first, of_first) in _defaults_of_first(opened, runs).items():
            mine, theirs = by_name[name].study_id, by_name[first].study_id
            for run in runs:
                made = run.state == "finished" and run.result is not None
                its = (run.study_id, run.trial_number) == (theirs, of_first)
                if made and its and (mine, trial, run.block) not in there:
                    found.append(_copied(run, mine, trial, f"{first}, trial {of_first}"))
    return found


def _copied(run: VerificationRun, study_id: int, trial: int, origin: str) -> VerificationRun:
    assert run.result is not None, "only what was made is taken over"
    recorded = replace(run.result.recorded, copied_from=origin)
    result = replace(run.result, recorded=recorded)
    return replace(run, study_id=study_id, trial_number=trial, result=result, losses=0, late=())


_Asked = tuple[str, int]
"""A study's name, and a trial of it."""


def _wanted(opened: Sequence[OpenStudy], runs: Sequence[VerificationRun]) -> dict[_Asked, int]:
    """How many blocks each is to run, by what the looks so far say."""
    plan = StoredPlan.model_validate(runs[0].plan)
    looks = Looks.of(plan, int(runs[0].plan["seeds"]))
    planned = {(study.name, trial) for study in opened for trial in _asked(study, runs)}
    if len(looks.blocks) == 1:
        return dict.fromkeys(sorted(planned), looks.blocks[0])
    now = {study.name: snapshot(study).with_runs_read() for study in opened}
    ran = _ran(opened, now, runs)
    confirmed = [
        confirmation_in(now[study.name], mine)
        for study in opened
        if study.name in plan.confirms
        and (mine := [run for run in runs if run.study_id == study.study_id])
    ]
    reference = [each for each in now.values() if each.membership.group == plan.reference]
    wanted: dict[_Asked, int] = {}
    asked = planned
    for blocks in looks.blocks:
        wanted |= dict.fromkeys(sorted(asked), blocks)
        if any(ran[each] < blocks for each in asked):
            break
        still_open: set[_Asked] = set()
        for there in confirmed:
            still_open |= _still_open(there, reference, blocks)
        asked = still_open & planned  # runs of other sessions stay as they are
    return wanted


def _ran(
    opened: Sequence[OpenStudy], now: Mapping[str, StudySnapshot], runs: Sequence[VerificationRun]
) -> Counter[_Asked]:
    """How many runs of these each has finished, on the devices of its study."""
    found: Counter[_Asked] = Counter()
    for study in opened:
        mine = [run for run in runs if run.study_id == study.study_id]
        model = now[study.name].device_model
        for each in as_configurations(study.name, mine, device_model=model):
            found[study.name, each.trial_number] = len(each.runs)
    return found


def _still_open(
    there: Confirmation, reference: Sequence[StudySnapshot], blocks: int
) -> set[_Asked]:
    """What the next look is to be about: what is not shown yet and may be, and the default that it
    is held against.
    """
    found: set[_Asked] = set()
    default = there.default
    assert default is not None, "it has come to a look"
    asked = {Question.MARGIN: there.frozen.margin}
    if there.frozen.margin > NO_LOSS:
        asked[Question.NO_LOSS] = NO_LOSS
    for question, margin in asked.items():
        for step in there.steps:
            mine, usual = step.until(blocks), default.until(blocks)
            test = tested(mine, usual, margin=margin, looks=there.looks, question=question)
            if test.claimed:
                continue
            if there.looks.is_hopeless(test.p, test.blocks):
                break
            found |= {(there.study, each.trial_number) for each in (step, default)}
    defaults = [each.until(blocks, there.session) for each in default_runs(reference)[0]]
    margin = reference[0].policy.counted_margin if reference else there.frozen.margin
    for offer in there.offers if reference else ():
        apart = tested_apart(offer.until(blocks), defaults, margin=margin, there=there)
        if apart.claimed:
            continue
        if there.looks.is_hopeless(apart.p, apart.blocks):
            break
        found.add((there.study, offer.trial_number))
        found |= {(each.study, each.trial_number) for each in defaults}
    return found


def _asked(study: OpenStudy, runs: Sequence[VerificationRun]) -> Iterator[int]:
    """The trials of a study that the plan of these runs tests; of a reference, its default."""
    frozen = StoredPlan.model_validate(runs[0].plan).confirms.get(study.name)
    mine = {run.trial_number for run in runs if run.study_id == study.study_id}
    if mine:
        yield from sorted(mine) if frozen is None else frozen.trials()


def _seeds(opened: Sequence[OpenStudy], runs: Sequence[VerificationRun]) -> _Seeds:
    """The seeds of blocks that have begun."""
    search_of = {study.study_id: study.membership.search for study in opened}
    return {
        (search_of[run.study_id], run.block): run.seed for run in runs if run.study_id in search_of
    }


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
    still_asked: Callable[[], None] = lambda: None,
) -> Planned:
    """Plan runs of what each search recommends and of its default, on `seeds` untouched seeds each;
    and of what it offers for the quality of the reference's default: those of the first look. The
    same call plans those of the next one, for what is not decided.

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
        queue.add(taken_over(whole, queue.runs()))
        again = queue.add(missing_runs(whole, queue.runs()))
        found = _freeze_all(opened, reference, seeds)
        if again:
            found.notes.append(f"the confirmation goes on: {again} runs are left")
        if not found.frozen:
            return Planned(again, tuple(found.missing), tuple(found.notes))
        if reference is None and all(each.plan.recommended is None for each in found.frozen):
            seeds = min(seeds, LEAST_RUNS)  # the defaults run a few times, for the record
        members = [*found.frozen, *_only_default(reference, found.frozen)]
        looks = looks_of(seeds)
        drawn = new_seeds(whole, looks[0])
        plan: dict[str, Any] = {
            "kind": CONFIRMATION,
            "confirms": {each.study.name: each.plan.model_dump() for each in found.frozen},
            "reference": reference.name if reference else None,
            "cut": {each.study.name: each.plan.default for each in members if each.cut},
            "seeds": seeds,
            "looks": looks,
            "top": max(len(each.plan.trials()) for each in found.frozen),
        }
        blocks = [_block(members, seed) for seed in drawn]
        added = add_session(queue, blocks, plan)
    return Planned(again + added, tuple(found.missing), tuple(found.notes))


def _block(members: Sequence[_Frozen], seed: int) -> list[Turn]:
    """Every configuration once, the default once for all searches of a group."""
    turns: list[Turn] = []
    groups: set[str] = set()
    for each in sorted(members, key=lambda one: one.study.membership.search):
        mine = each.plan.trials()
        if each.study.membership.group in groups:
            mine.remove(each.plan.default)
        groups.add(each.study.membership.group)
        turns += [Turn(each.study.study_id, n, each.params[n], seed) for n in mine]
    return turns


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
    # What is the reference itself keeps what was confirmed before others were held against it.
    asked = reference in (None, there.reference, study.membership.group)
    return asked and there.frozen.known == known_runs_of(study)


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
    assert model is not None, "or there was no answer"
    notes: list[str] = []
    offers: tuple[Estimate, ...] = ()
    may, first = candidates_of(now), None if own.default_stands else own.chosen.trial
    if reference is not None:
        try:
            level = quality_of(reference, of_reference, now)
            offers = confirmation_steps(
                model, first, margin=margin, seeds=seeds, candidates=may, level=level
            )
        except NoAnswerError as error:
            notes.append(f"{study.name}: {error}")
    steps = confirmation_steps(model, first, margin=margin, seeds=seeds, candidates=may)
    if not steps:
        notes.append(f"{study.name}: the default stands, so there is nothing to hold against it")
    last = confirmation_of(now)
    plan = StoredFrozen(
        default=own.default.trial,
        recommended=steps[0].trial if steps else None,
        bolder=tuple(each.trial for each in steps[1:]),
        offers=tuple(each.trial for each in reversed(offers)),
        margin=margin,
        chance=steps[0].chance if steps else None,
        known=known_runs_of(now),
        # Of how many that tested something this is the next one.
        attempt=1 if last is None else last.frozen.attempt + (not last.default_stands),
    )
    params = {number: now.record(number).params for number in plan.trials()}
    return _Frozen(study, plan, params, own.cut_at is not None, tuple(notes))


def _only_default(reference: Group[OpenStudy] | None, frozen: Sequence[_Frozen]) -> list[_Frozen]:
    """The reference's default, where the reference is confirmed by another plan or not at all."""
    if reference is None or any(each.study.name == reference.members[0].name for each in frozen):
        return []
    first = reference.members[0]
    now = snapshot(first)
    number = default_of(now)
    if number is None or not any(each.plan.offers for each in frozen):
        return []
    plan = StoredFrozen(default=number, margin=now.policy.counted_margin, known=known_runs_of(now))
    return [_Frozen(first, plan, {number: now.record(number).params}, default_is_cut(now))]
