"""Planning a verification: which configurations run again, on which fresh seeds, in which order."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tuner.config import Choice, Value
from tuner.data.task import load_task
from tuner.errors import TunerError, UsageError
from tuner.spec.membership import FIRST_DRAW, seed_of_trial, seeds_of
from tuner.spec.pareto import knee_index
from tuner.spec.program import refuse_other_clocks, refuse_other_windows
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import Database, initialisation_lock
from tuner.storage.queue.verifications import (
    PlannedRun,
    VerificationRun,
    Verifications,
    planned_seeds,
)
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.results import StudyResults, TrialRecord, read_results
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.picks import choosing, note_picks, picks
from tuner.verdict.recommendation import model_of, nothing_expected, why_none
from tuner.verdict.round_allowances import ALLOWANCE, KNOWN, worth_verifying
from tuner.verdict.runs_model import Front, expected_front, front_of_runs
from tuner.verdict.stats.intervals import LEAST_RUNS
from tuner.verdict.verified import verifications_of, verified_in

# Training seeds for verifications: those that nothing in the database has seen.


_FRESH = 0x76657269
"""Tells the seeds of verifications from those of trials."""
_FRESH_OF_DRAW = 0x64726177
"""As well, and from those of the first draw."""


def new_seeds(studies: Sequence[OpenStudy], count: int) -> list[int]:
    """`count` training seeds that nothing in the database of these `studies` has seen, of the
    latest draw that one of them is of.
    """
    draw = max(each.membership.draw for each in studies)
    return fresh_seeds(count, seen_seeds(studies[0].database), draw=draw)


def fresh_seeds(count: int, used: Collection[int], *, draw: int = FIRST_DRAW) -> list[int]:
    """`count` training seeds, always the same ones of a `draw` but
    for those in `used`: configurations share them.
    """
    kind = [_FRESH] if draw == FIRST_DRAW else [_FRESH_OF_DRAW, draw]
    found: list[int] = []
    number = 0
    while len(found) < count:
        seed = int(np.random.SeedSequence([*kind, number]).generate_state(1)[0])
        if seed not in used and seed not in found:
            found.append(seed)
        number += 1
    return found


def seeds_to_verify_on(
    there: Iterable[VerificationRun], studies: Sequence[OpenStudy], count: int
) -> list[int]:
    """`count` seeds for a verification of the `studies`, given the runs that are planned already.

    A plan that was made for all of them together is gone on with, on its seeds. Whatever it lacks
    is fresh.
    """
    again = _planned_together(there, {each.study_id for each in studies})[:count]
    if len(again) == count:
        return again
    return again + new_seeds(studies, count - len(again))


def seen_seeds(database: Database) -> set[int]:
    """Every seed that something here was trained on or is to be: by the search of any study until
    its budget is filled, and by any verification.
    """
    seen = planned_seeds(database.engine)
    for name in list_studies(database):
        try:
            seen |= _of_search(open_study(database, name))
        except TunerError:  # of another version, or damaged: nobody can train it here
            continue
    return seen


def _of_search(study: OpenStudy) -> set[int]:
    repeats, root = study.definition.seeds_per_trial, study.membership.seed_root
    seen: set[int] = set()
    numbers = set(range(study.ledger.counts().budget))
    for record in read_results(study).records:
        recorded = record.recorded
        # Of a trial that was taken over from another study, the recorded ones are the ones.
        seen.update(seeds_of(recorded, record.number, repeats=repeats, root=root))
        seen.update(seed for seed in (recorded.seed, *(recorded.seeds or ())) if seed is not None)
        numbers.add(record.number)
    return seen | {
        seed_of_trial(n, repeat, root=root) for n in numbers for repeat in range(repeats)
    }


def _planned_together(runs: Iterable[VerificationRun], studies: Collection[int]) -> list[int]:
    """The seeds that every one of the studies has runs on, in the order of their plan."""
    by_seed: dict[int, set[int]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, set()).add(run.study_id)
    return [seed for seed, planned in by_seed.items() if studies and planned >= set(studies)]


# Verification runs in blocks of seeds, so that whatever drifts on a device meets all alike.


@dataclass(frozen=True, slots=True)
class Turn:
    """A configuration that is to run once on a seed."""

    study_id: int
    trial_number: int
    params: Mapping[str, Value]
    seed: int


def interleaved(
    blocks: Sequence[Sequence[Turn]],
    *,
    first: int,
    plan: dict[str, Any],
    session: str | None = None,
) -> list[PlannedRun]:
    """A session of runs: the blocks one after the other, the turns of each in a random order of its
    own, by the plan's `shuffle_seed`; places count on from `first`. A new session, unless it is
    named.
    """
    shuffler = np.random.default_rng(plan["shuffle_seed"])
    session = session or uuid.uuid4().hex
    runs: list[PlannedRun] = []
    for block, turns in enumerate(blocks):
        for index in shuffler.permutation(len(turns)):
            turn = turns[index]
            runs.append(
                PlannedRun(
                    study_id=turn.study_id,
                    trial_number=turn.trial_number,
                    params=dict(turn.params),
                    seed=turn.seed,
                    block=block,
                    place=first + len(runs),
                    session=session,
                    plan=plan,
                )
            )
    return runs


def add_session(queue: Verifications, blocks: Sequence[Sequence[Turn]], plan: Any) -> int:
    """Plan a new session of runs behind all that are there; returns how many it has."""
    first = max((run.place for run in queue.runs()), default=-1) + 1
    plan = {**plan, "shuffle_seed": secrets.randbits(31)}
    return queue.add(interleaved(blocks, first=first, plan=plan))


@dataclass(frozen=True, slots=True)
class Planned:
    """A verification as planned: how many runs are new, what cannot be verified yet and why, and
    what else to know.
    """

    new_runs: int
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()


def study_names(variants: str, *, task: str, studies: str | None = None) -> list[str]:
    """Names of the studies that a comma-separated list
    of variants means on a task, or those that `studies` lists.

    Raises:
        UsageError: a variant or task that is not there, an empty name, or one named twice.
    """
    given = [name.strip() for name in (studies or variants).split(",")]
    if not all(given):
        raise UsageError(
            f"{studies or variants!r} holds an empty name; expected e.g. rmsnorm,original"
        )
    if studies is None:
        on = load_task(task).name
        given = [
            f"{on}-{name if name in builtin_variants() else load_study_file(name).name}"
            for name in given
        ]
    if len(set(given)) < len(given):
        raise UsageError(f"{studies or variants!r} names a study twice; name each once")
    return given


def plan_verification(
    opened: Sequence[OpenStudy],
    *,
    top: int,
    seeds: int,
    choice: Choice = Choice.FRONT,
    device_s: float | None = None,
) -> Planned:
    """Plan runs of the default configuration and of `top` ones along the front of each study, on
    `seeds` fresh seeds.

    `choice` says which front. New runs may have devices for `device_s` seconds all together: see
    `allowance`.

    What was planned before stays, in its order: the same call again plans nothing new, and a plan
    for all of these studies goes on, on its seeds. Other seeds are ones that no search of any study
    in the database has seen, and no verification. New runs form a session: blocks of one seed each,
    in which every configuration has its turn in random order, so that whatever drifts on the
    device meets all of them alike.

    Raises:
        UsageError: the studies' times were measured on different device models, or their data
            or test windows differ.
    """
    refuse_apart(opened)
    chosen = _choose(opened, top, choice)
    queue = verifications_of(opened)
    with initialisation_lock(opened[0].database.address):
        everything = queue.runs()
        there = choosing(everything)
        planned = {(run.study_id, run.trial_number, run.seed) for run in everything}
        ids = {each.name: each.study_id for each in opened}
        asked = [each for each in opened if each.name in chosen.trials]
        if choice is Choice.RECOMMENDED:  # each round has seeds of its own; others go on
            fresh = new_seeds(asked or opened, seeds)
        else:
            fresh = seeds_to_verify_on(there, asked or opened, seeds)
        members = [(ids[name], r) for name, records in chosen.trials.items() for r in records]
        blocks = [
            [
                Turn(study, r.number, r.params, seed)
                for study, r in members
                if (study, r.number, seed) not in planned
            ]
            for seed in fresh
        ]
        plan = {
            "seeds": seeds,
            "top": top,
            "picks": chosen.picks,
            "choice": choice.value,
            **({KNOWN: chosen.known} if chosen.known else {}),
            **({} if device_s is None else {ALLOWANCE: device_s}),
        }
        added = add_session(queue, blocks, plan)
        for name, mine in chosen.picks.items():
            note_picks(queue, ids[name], name, mine if name in chosen.expected else {})
        return Planned(added, tuple(chosen.missing), tuple(chosen.notes))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is to run again, by the names of the studies; and what cannot be verified, and why."""

    trials: dict[str, list[TrialRecord]] = field(default_factory=dict)
    picks: dict[str, dict[str, int]] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    """The studies whose expected front was chosen from."""
    known: dict[str, int] = field(default_factory=dict)
    """Of a round: how many trials of each study had ended."""
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _choose(opened: Sequence[OpenStudy], top: int, choice: Choice) -> _Chosen:
    """The default configuration and `top` of the front of each study that has one."""
    chosen = _Chosen()
    for each in opened:
        results = read_results(each)
        if not any(record.converged for record in results.complete):
            chosen.missing.append(f"{each.name}: {_no_front(results)}; nothing to verify yet")
            continue
        if choice is Choice.RECOMMENDED:
            _choose_round(each, top, chosen)
            continue
        front = front_of_runs(results)
        if choice is Choice.EXPECTED:
            now = snapshot(each)
            if (expected := front_of_search(now)) is not None:
                front = expected
                chosen.expected.add(each.name)
            else:
                chosen.notes.append(f"{nothing_expected(now)}; the front of single runs stands")
        chosen.trials[each.name] = configurations(results, top, front)
        chosen.picks[each.name] = picks(results, front)
    return chosen


def _choose_round(study: OpenStudy, top: int, chosen: _Chosen) -> None:
    """What the next round of a study runs, if there is one."""
    now = snapshot(study).with_runs_read()
    found = worth_verifying(now, top)
    if found is None:
        chosen.missing.append(f"{study.name}: {why_none(now)}")
    elif found:
        front = front_of_search(now) or front_of_runs(now.results)
        picked = picks(now.results, front)
        chosen.trials[study.name] = _with_knee(now, found, picked.get("knee"))
        chosen.picks[study.name] = picked
        chosen.expected.add(study.name)
        chosen.known[now.name] = now.finished


def front_of_search(study: StudySnapshot) -> Front | None:
    """The front that the search's own runs expect, whatever was verified since: who plans again
    chooses the same. None where they are too few.
    """
    alone = replace(study, read_runs=tuple)
    model = model_of(alone)
    return None if model is None else expected_front(alone, model)


def _with_knee(
    study: StudySnapshot, chosen: list[TrialRecord], knee: int | None
) -> list[TrialRecord]:
    """The knee runs in one round, too: tables show it beside the default."""
    if knee is None or knee in {record.number for record in chosen}:
        return chosen
    there = verified_in(study).get(knee)
    if there is not None and there.planned >= LEAST_RUNS:
        return chosen
    return [*chosen, study.record(knee)]


def configurations(results: StudyResults, top: int, front: Front) -> list[TrialRecord]:
    """The default configuration where it has a trial, and `top` of the front: its knee, its ends,
    then spread between.

    A configuration that stands there twice (a repeated trial) is taken once.
    """
    found = [results.default] if results.default is not None else []
    for record in spread(front, top):
        if all(record.params != other.params for other in found):
            found.append(record)
    return found


def spread(front: Front, count: int) -> list[TrialRecord]:
    """`count` trials of a front: knee, lowest MQL,
    least time, then always the farthest from those taken.
    """
    points = front.points
    if len(points) <= count:
        return list(front.trials)
    order = list(dict.fromkeys([knee_index(points), len(points) - 1, 0]))[:count]
    values = np.asarray(points, dtype=float)
    scaled = (values - values.min(axis=0)) / np.maximum(np.ptp(values, axis=0), 1e-300)
    while len(order) < count:
        distance = np.linalg.norm(scaled[:, None] - scaled[order][None], axis=2).min(axis=1)
        order.append(int(np.argmax(distance)))
    return [front.trials[i] for i in sorted(order)]


def _no_front(results: StudyResults) -> str:
    finished = len(results.complete)
    if not finished:
        return "no finished trial"
    return f"none of {finished} finished trial{'s' if finished > 1 else ''} converged"


def refuse_unlike(
    one: OpenStudy | StudySnapshot, other: OpenStudy | StudySnapshot, remedy: str
) -> None:
    """Raises UsageError, with a `remedy`, where figures of two studies could not mean the same."""
    a, b = one.definition, other.definition
    if a.data_hash != b.data_hash:
        raise UsageError(
            f"studies {one.name!r} ({a.task_name}) and {other.name!r} ({b.task_name}) are on "
            f"different data: their figures do not compare; {remedy}"
        )
    refuse_other_windows(one.name, a.mql_split, other.name, b.mql_split)
    refuse_other_clocks(one.name, a.clock, other.name, b.clock)


def refuse_apart(opened: Sequence[OpenStudy]) -> None:
    first = opened[0]
    for each in opened[1:]:
        refuse_unlike(first, each, "verify them one by one")
        models = {
            model for model in (first.device_model(), each.device_model()) if model is not None
        }
        if len(models) > 1:
            raise UsageError(
                f"studies {first.name!r} and {each.name!r} hold times of different devices "
                f"({', '.join(sorted(models))}): they do not compare; verify them one by one, each "
                "on its own device"
            )
