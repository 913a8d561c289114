"""A verification as workers and as a function: configurations run again on fresh seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from tuner.config import Choice
from tuner.devices.group import grouped
from tuner.devices.lock import check_folder
from tuner.errors import UsageError
from tuner.launch.crew import Crew, deadline, note_spent, runs_unpaid
from tuner.launch.request import (
    Notes,
    Number,
    Outcome,
    Positive,
    Progress,
    Quiet,
    Request,
    StopRequests,
    checked,
    names_of,
)
from tuner.launch.where import Where, choose_where
from tuner.spec.margin import LOOK_SHARES
from tuner.storage.database import Database, open_database
from tuner.storage.retry import in_one_sentence
from tuner.storage.url import absolute, parse_url
from tuner.study.code import require_trust, with_code
from tuner.study.open import OpenStudy, open_study
from tuner.study.own_file import programs_of
from tuner.study.snapshot import PREFIX, Group, all_meant, open_group, snapshot
from tuner.verdict.confirmation_plan import SEEDS as CONFIRMATION_SEEDS
from tuner.verdict.confirmation_plan import each_once, plan_confirmation
from tuner.verdict.recommendation import ROUNDS, VERIFIED, VERIFIED_SEEDS, why_none
from tuner.verdict.round_allowances import RoundAllowance, allowances, committed_s
from tuner.verdict.verification_plan import Planned, plan_verification, study_names
from tuner.verdict.verified import Verified, verifications_of, verified_in
from tuner.worker.paths import WorkerPaths, deliver, working_folder

__all__ = ["VerificationOutcome", "VerificationRequest", "run"]


# What a verification is asked for, and what it says at its end.


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRequest(Request):
    """Which studies to verify together, and how thoroughly."""

    variants: str | Sequence[str]
    studies: str | None = None
    """Names of studies, or `group:NAME`, with commas; where not given all searches of
    `<task>-<variant>`."""
    top: Number | None = None
    """Configurations along each front, its knee included (5), or of each round (6)."""
    choice: Choice | None = None
    """None: what may be recommended, where there are trials enough to say so; else the front."""
    seeds: Number | None = None
    """Of each configuration: 10, of each round 6, of a confirmation 30."""
    confirm: bool = False
    """Test what each study recommends, on untouched seeds, in place of a verification."""
    against: str | None = None
    """Of a confirmation: a variant, or `group:NAME`, whose default's quality is asked for; the
    first of several variants where none is named."""
    margin: float | None = None
    """Of a confirmation; the studies' own where none is said."""
    budget_s: Positive | None = None
    """Of a verification: its runs, and those of earlier ones, may have devices for so long; what
    has not begun by then is taken off the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOutcome:
    """How a verification ended, and what is verified by now."""

    ended: Outcome
    verified: dict[str, tuple[Verified, ...]]
    """By study, in the order of the request."""
    missing: tuple[str, ...]
    """What cannot be verified yet, and why."""
    notes: tuple[str, ...]
    """All lines that a person would have been told, in order."""
    printed: str | Mapping[str, str] = ""
    """What the engine would be told."""


TOP, SEEDS = 5, 10
"""Of a front, unless somebody says otherwise."""


def run(
    request: VerificationRequest,
    *,
    progress: Progress | None = None,
    stop: StopRequests | None = None,
    still_asked: Callable[[], None] = lambda: None,
) -> VerificationOutcome:
    """Run what may be recommended, or the front's configurations, and the default one again, on
    seeds that the search never used. Ends as `tuner.launch.run` does. `still_asked` is as of
    `plan_confirmation`.

    Raises:
        UsageError: studies or devices that are not there, or do not go together.
        StorageError: a database that cannot be used.
        TunerError: the workers could not be kept alive.
    """
    request, until = checked(request), deadline(request.timeout_s)
    notes = Notes(progress or Quiet())
    variants = ",".join(names_of(request.variants))
    asked = study_names(variants, task=request.task, studies=request.studies)
    address = absolute(parse_url(request.storage))
    with in_one_sentence(), closing(open_database(address, create=False)) as database:
        names = all_meant(database, asked, variants=request.studies is None)
        opened = [open_study(database, name) for name in names]
        for each in opened:
            notes.note(require_trust(each, trust=request.trust))
        where = choose_where(request.devices, environment=os.environ)
        _check_where(where, opened)
        reference = _reference(database, request, opened)
        working_on = each_once([*opened, *(reference.members if reference else ())])
        for each in working_on:
            with_code(each, trust=request.trust)  # its workers find it where this user keeps it
        notes.note(where.notice)
        crew = Crew(
            devices=where.devices,
            engine=where.engine,
            task=request.task,
            data_dir=request.data_dir,
            deadline=until,
            verify=True,
            trusted_code=programs_of(each.definition for each in working_on),
        )
        stop, missing = stop or StopRequests(), []
        printed: str | Mapping[str, str] = ""
        choice = _choice(request, opened, notes)
        for nth in range(LOOKS if request.confirm else _rounds(choice)):
            found = _planned(opened, reference, request, choice, still_asked)
            if nth and not found.new_runs:
                break
            missing += (new := [line for line in found.missing if line not in missing])
            for line in (*new, *found.notes):
                notes.note(line)
            if request.devices.print_only:
                printed, ended = crew.in_words(working_on), Outcome.PRINTED
                break
            ended = work_off(working_on, crew, notes, stop)
            if ended is Outcome.FILLED and runs_unpaid(working_on):
                note_spent(working_on, notes)
                ended = Outcome.GPU_HOURS
            if ended is not Outcome.FILLED:
                break
        return VerificationOutcome(
            ended=ended,
            verified={
                e.name: tuple(verified_in(snapshot(e)).values()) for e in opened if not printed
            },
            printed=printed,
            missing=tuple(missing),
            notes=tuple(notes.lines),
        )


LOOKS = len(LOOK_SHARES) + 1
"""After the last one, what searches share is still to be taken over."""


def _rounds(choice: Choice) -> int:
    return ROUNDS if choice is Choice.RECOMMENDED else 1


def _check_where(where: Where, opened: Sequence[OpenStudy]) -> None:
    """Before anything is planned.

    Raises:
        UsageError: the studies' times were measured on other devices, or the engine cannot do it.
        DeviceLockError: devices cannot be locked.
    """
    if where.engine is not None:
        where.engine.check(opened[0].database.address)
        return
    check_folder()
    for each in opened:
        together = each.definition.training.gpus_per_trial
        each.refuse_other_device(grouped(where.devices, together)[0].model)


def _reference(
    database: Database, request: VerificationRequest, opened: Sequence[OpenStudy]
) -> Group[OpenStudy] | None:
    """The group that `against` names."""
    if request.against is None:
        return None
    name = request.against.removeprefix(PREFIX)
    if name == request.against:
        (name,) = study_names(name, task=request.task)
    found = open_group(database, name)
    if {each.name for each in opened} <= {each.name for each in found.members}:
        raise UsageError(f"--against {request.against} is what is confirmed itself; name another")
    return found


def _choice(request: VerificationRequest, opened: Sequence[OpenStudy], notes: Notes) -> Choice:
    """What is verified where nobody said."""
    if request.choice is not None or request.confirm:
        return request.choice or Choice.FRONT
    for each in opened:
        if why_none(snapshot(each).with_runs_read()) is not None:
            notes.note(
                f"{each.name}: too little has converged to say what may be recommended; the front "
                "is verified, as with --choose front"
            )
            return Choice.FRONT
    return Choice.RECOMMENDED


def _planned(
    opened: Sequence[OpenStudy],
    reference: Group[OpenStudy] | None,
    request: VerificationRequest,
    choice: Choice,
    still_asked: Callable[[], None],
) -> Planned:
    """What there is to run, or the next round of it."""
    if request.confirm:
        return plan_confirmation(
            opened,
            reference=reference,
            seeds=request.seeds or CONFIRMATION_SEEDS,
            margin=request.margin,
            still_asked=still_asked,
        )
    if choice is not Choice.RECOMMENDED:
        return plan_verification(
            opened,
            top=request.top or TOP,
            seeds=request.seeds or SEEDS,
            choice=choice,
            device_s=_left_s(opened, request.budget_s),
        )
    return _planned_round(opened, request)


def _left_s(opened: Sequence[OpenStudy], budget_s: float | None) -> float | None:
    if budget_s is None:
        return None
    runs = [run for each in opened for run in each.verifications.runs()]
    return max(0.0, budget_s - committed_s(runs))


def _planned_round(opened: Sequence[OpenStudy], request: VerificationRequest) -> Planned:
    # Searches of one variant share no luck: those of each number have seeds of their own.
    by_number: dict[int, list[OpenStudy]] = {}
    for each in opened:
        by_number.setdefault(each.membership.search, []).append(each)
    top, seeds = request.top or VERIFIED, request.seeds or VERIFIED_SEEDS
    may_have: dict[int, RoundAllowance] = {}
    if request.budget_s is not None:
        now = {
            number: [snapshot(each).with_runs_read() for each in mine]
            for number, mine in by_number.items()
        }
        may_have = allowances(now, request.budget_s, top=top, seeds=seeds)
    rounds = [
        plan_verification(
            mine,
            top=may_have[number].top if number in may_have else top,
            seeds=seeds,
            choice=Choice.RECOMMENDED,
            device_s=may_have[number].device_s if number in may_have else None,
        )
        for number, mine in by_number.items()
        if request.budget_s is None or number in may_have
    ]
    return Planned(
        sum(each.new_runs for each in rounds),
        tuple(line for each in rounds for line in each.missing),
        tuple(line for each in rounds for line in each.notes),
    )


def work_off(opened: Sequence[OpenStudy], crew: Crew, notes: Notes, stop: StopRequests) -> Outcome:
    """Have what is planned of these studies run, where anything is left."""
    queue = verifications_of(opened)
    deliver(opened, WorkerPaths(working_folder(opened[0].database.address)))
    queue.reap()
    counts = queue.counts()
    if counts.left == 0:
        if counts.budget:
            notes.note(
                f"nothing to do: {counts.finished} of {counts.budget} verification runs are "
                "finished"
            )
        return Outcome.FILLED
    return crew.work(opened, notes.progress, stop)
