"""A gate as workers and as a function: a changed model and another, trained in turn on fresh seeds.

Both are studies whose runs are verification runs of their defaults, named after what they are: the
same call goes on with them, another model has others.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from tuner.data.task import load_task
from tuner.display.text import in_code
from tuner.errors import UsageError
from tuner.export.pick import Asked, pick_of
from tuner.launch import launcher, request, verification
from tuner.launch.crew import Crew, deadline
from tuner.launch.plan import LaunchPlan, make_aim, make_plan
from tuner.launch.request import Number, Outcome, Positive
from tuner.launch.retune_agreement import MOST_TRIALS
from tuner.spec.policy import SearchPolicy, StudySettings
from tuner.storage.database import initialisation_lock, open_database
from tuner.storage.retry import in_one_sentence
from tuner.storage.url import absolute, parse_url
from tuner.study.open import OpenStudy
from tuner.study.own_file import beside_all, programs_of
from tuner.study.snapshot import snapshot
from tuner.verdict.gate import MOST_PAIRS, Judged, judge, looks_until
from tuner.verdict.known_runs import converged_configurations, runs_of
from tuner.verdict.recommendation import why_none
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS
from tuner.verdict.verification_plan import Turn, add_session, refuse_unlike, seeds_to_verify_on
from tuner.verdict.verified import Verified, as_configurations, verifications_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest(request.Request):
    """Which model is held against which. Both have the defaults of their files."""

    variant: str
    """The changed one: a built-in variant, or the path of a study file."""
    against: str
    only_mql: bool = False
    """Times are not compared: on a shared machine they mean nothing."""
    seeds: Number = MOST_PAIRS
    """Pairs of trainings at most; more than `MOST_PAIRS` are as many."""
    budget_s: Positive | None = None
    """Seconds on the device for a search of the changed one, whose recommendation runs then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """How a gate ended, and what it says."""

    ended: Outcome
    judged: Judged | None = None
    """None before the first look."""
    why: str = ""
    """What keeps it from any look, and what to do."""


def run(asked: GateRequest, progress: request.Progress, stop: request.StopRequests) -> GateOutcome:
    """Train both in turn, on seeds that nothing has seen, until the answer is clear. The same
    request goes on where the last one ended; ends as `tuner.launch.run` does.

    Raises:
        UsageError: something was asked for that is not there, or does not go together.
        DataError: data that is missing or unfit.
        StorageError: a database that cannot be used.
        TunerError: the workers could not be kept alive.
    """
    asked, until = request.checked(asked), deadline(asked.timeout_s)
    if asked.variant == asked.against:
        raise UsageError(f"--against {asked.against} is the variant itself; name another one")
    notes = request.Notes(progress)
    # Said, so that nobody is told what it means for a search.
    settings = StudySettings(mql_split=load_task(asked.task).usual_split)
    own = request.shared(asked, request.Request) | {"settings": settings, "estimate": False}
    words = (asked.variant, asked.against)
    launches = [request.LaunchRequest(variants=[word], trials=1, **own) for word in words]
    aims = [make_aim(each, environment=os.environ) for each in launches]
    plans = [make_plan(each, aim) for each, aim in zip(launches, aims, strict=True)]
    where, plan = aims[0].where, _together(plans, aims[0].where.model, asked)
    of_networks = [line for each in plans for line in each.of_networks]
    for line in (where.notice, *plans[0].of_data, *of_networks):
        notes.note(line)
    with in_one_sentence(), closing(open_database(absolute(parse_url(asked.storage)))) as database:
        made = launcher.make_studies(database, launches[0], plan, aims[0], notes)
        studies = [each.study for each in made]
        refuse_unlike(studies[0], studies[1], "hold it against one of its own kind")
        if asked.budget_s is not None and not studies[0].verifications.runs():
            policy = SearchPolicy(search_s=asked.budget_s)
            search = replace(launches[0], study=studies[0].name, trials=MOST_TRIALS, policy=policy)
            ended = launcher.run(search, progress=notes.progress, stop=stop).ended
            if ended is not Outcome.FILLED:
                return GateOutcome(ended=ended)
            if why := _undecided(studies[0], asked.variant):
                return GateOutcome(ended=ended, why=why)
        crew = Crew(
            devices=where.devices[: aims[0].together],
            task=asked.task,
            data_dir=asked.data_dir,
            deadline=until,
            verify=True,
            trusted_code=programs_of(plan.definitions.values()),
        )
        judged: Judged | None = None
        for pairs in looks_until(asked.seeds):
            seeds = _plan(studies, pairs, retuned=asked.budget_s is not None)
            ended = verification.work_off(studies, crew, notes, stop)
            if ended is not Outcome.FILLED:
                break
            sides = [_side(each) for each in studies]
            if not sides[1].counted:  # the limit of epochs ends both: they are compared there
                sides = [replace(each, to_its_limit=True) for each in sides]
            new, old = (each.sample() for each in sides)
            judged = judge(new, old, seeds, most=asked.seeds, only_mql=asked.only_mql)
            if judged is not None and judged.decided:
                break
        return GateOutcome(ended=ended, judged=judged)


def _undecided(study: OpenStudy, variant: str) -> str:
    """Why its search recommends nothing; empty where it does."""
    now = snapshot(study)
    if why_none(now) is None:
        return ""
    there = converged_configurations(now, runs_of(now))
    return (
        f"Undecided: a recommendation takes {LEAST_CONFIGURATIONS} configurations that converged, "
        f"its default among them; the search of {in_code(variant)} has {there}: raise --budget."
    )


def _together(plans: Sequence[LaunchPlan], model: str | None, asked: GateRequest) -> LaunchPlan:
    """One plan of both, under names that no other pair has, nor this one on another device."""
    both = [each for one in plans for each in one.definitions.values()]
    told = [[each.identity(), beside_all(each)] for each in both]
    what = json.dumps([told, model, asked.budget_s is not None], sort_keys=True)
    name = f"gate-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    return LaunchPlan(definitions={f"{name}-new": both[0], f"{name}-against": both[1]})


def _plan(studies: Sequence[OpenStudy], pairs: int, *, retuned: bool) -> list[int]:
    """The seeds of so many pairs, of which each is planned."""
    queue = verifications_of(studies)
    with initialisation_lock(studies[0].database.address):
        there = queue.runs()
        seeds = seeds_to_verify_on(there, studies, pairs)
        if new := [seed for seed in seeds if seed not in {run.seed for run in there}]:
            searched = (retuned, False)
            turns = [_turn(*each) for each in zip(studies, searched, strict=True)]
            blocks = [[replace(turn, seed=seed) for turn in turns] for seed in new]
            add_session(queue, blocks, {"seeds": pairs, "top": 1})
    return seeds


def _turn(study: OpenStudy, retuned: bool) -> Turn:
    """What of a study runs: what has run before, what its search recommends, or its default."""
    if runs := study.verifications.runs():
        return Turn(study.study_id, runs[0].trial_number, runs[0].params, 0)
    if not retuned:
        return Turn(study.study_id, 0, study.definition.defaults.as_dict(), 0)
    now = snapshot(study)
    record = pick_of(now, Asked(), lambda _name: now).record
    return Turn(study.study_id, record.number, record.params, 0)


def _side(study: OpenStudy) -> Verified:
    runs = study.verifications.runs()
    mine = [run for run in runs if run.trial_number == runs[0].trial_number]
    return as_configurations(study.name, mine, device_model=study.device_model())[0]
