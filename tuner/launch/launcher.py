"""One launch from its request to its outcome."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tuner.config import MqlSplit
from tuner.data.task import Task
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.devices.gpu import of_several
from tuner.devices.lock import check_folder
from tuner.errors import first_line
from tuner.estimate.cost_model import SizeCosts, keep, kept, key_of_search
from tuner.estimate.foretold import SearchForetold, costs_so_far, ended_trials, search_foretold
from tuner.estimate.measuring_process import MeasuringProcess, Subject, measured_costs
from tuner.estimate.whole_estimate import search_line, searches_line
from tuner.launch.baselines import check_foundation, keep_baselines
from tuner.launch.child import EarlyWorkers
from tuner.launch.crew import Crew, deadline, note_spent, trials_unpaid
from tuner.launch.plan import Aim, LaunchPlan, called_as_built_in, make_aim, make_plan
from tuner.launch.request import (
    LaunchOutcome,
    LaunchRequest,
    Notes,
    Outcome,
    Progress,
    Quiet,
    StopRequests,
    StudyOutcome,
    checked,
)
from tuner.spec.definition import StudyDefinition
from tuner.storage.database import Database, open_database
from tuner.storage.queue.roster import clock_in_words, newcomer_in_words
from tuner.storage.retry import in_one_sentence
from tuner.storage.sqlite import cautions
from tuner.storage.url import absolute, parse_url
from tuner.study.code import require_trust, with_code
from tuner.study.data_file import keep_data_file
from tuner.study.open import OpenStudy, devices_of_trials
from tuner.study.own_file import OwnProgram, keep_code, programs_of
from tuner.study.relaunch import Launched, Said, open_studies
from tuner.study.results import read_results
from tuner.version import installed
from tuner.worker.loop import host_facts
from tuner.worker.paths import WorkerPaths, tidy_up, working_folder

# What a launch says before it begins: how long its trials will take.


LEAST_TRIALS = 20
"""With fewer to come nothing is measured: that would take longer than it is worth."""
LEAST_TIMEOUT_S = 240.0
"""Of a launch that is stopped sooner, measuring would take too large a part."""
MEASURE_S, MEASURED_SIZES = 10.0, 8
"""Once the process is ready: the default, the corners, and what else there is time for."""
BUILDING_S = 20.0
"""More for kernels, on a device that has none yet: three sizes alone tell too little, and what is
built here the trials need, too."""
WAIT_S = 60.0
"""For the process to be ready, and for one size."""
TOLD_BY = 3
"""Trials that have ended tell what the sizes of a study cost."""
_log = logging.getLogger(__name__)


def worth_measuring(timeout_s: float | None) -> bool:
    """Whether a launch that is stopped after so long has time for it."""
    return timeout_s is None or timeout_s >= LEAST_TIMEOUT_S


def foretell(
    studies: Sequence[OpenStudy], request: LaunchRequest, aim: Aim, notes: Notes
) -> list[SearchForetold]:
    """Say of each study with trials to come what they will take, as far as that is known."""
    if trials_unpaid(studies):
        return []
    may_measure = request.estimate and worth_measuring(request.timeout_s)
    workers = aim.where.workers // devices_of_trials(studies)
    found = []
    failed: set[str] = set()
    for opened in studies:
        key = key_of_search(opened.definition, "", "")
        try:
            may = may_measure and key not in failed
            told = _of_study(opened, studies, request.data_dir, aim, may_measure=may)
        except Exception as error:  # noqa: BLE001 - whatever it is: no launch fails for it
            failed.add(key)
            notes.note(f"what {opened.name} will take is not foretold: {first_line(error)}")
            continue
        if told is None:
            continue
        search, from_trials = told
        found.append(search)
        if len(studies) == 1:
            line = search_line(opened.name, search, devices=workers, from_trials=from_trials)
            notes.note(line)
    if len(found) > 1:
        notes.note(searches_line(found, devices=workers))
    return found


def _of_study(
    opened: OpenStudy,
    studies: Sequence[OpenStudy],
    data_dir: Path | None,
    aim: Aim,
    *,
    may_measure: bool,
) -> tuple[SearchForetold, bool] | None:
    """What it will take, and whether trials say so."""
    counts, policy, devices = opened.ledger.counts(), opened.policy(), aim.where.devices
    together = opened.definition.training.gpus_per_trial
    may_measure &= together == 1  # it is measured on one
    model = of_several(devices[0].model, together) if devices else opened.device_model()
    if counts.left <= 0 or model is None or opened.definition.program is not None:
        return None
    costs = _known(opened, studies, model)
    if costs is None and may_measure and devices and counts.left >= LEAST_TRIALS:
        costs = _measured(opened, aim.task, data_dir, devices[0])
    if costs is None:
        return None
    told = search_foretold(
        opened.definition,
        costs,
        trials=counts.budget,
        ended=ended_trials(opened),
        sampler=policy.sampler,
        prune=policy.prune,
        within_s=policy.search_s,
    )
    return None if told is None else (told, costs.from_trials)


def _known(opened: OpenStudy, studies: Sequence[OpenStudy], model: str) -> SizeCosts | None:
    """By trials, of this study or of another here with the same epochs, or by what was measured."""
    mine = costs_so_far([opened], model)
    if mine is not None and len(mine.sizes) >= TOLD_BY:
        return mine
    key = key_of_search(opened.definition, model, "")
    alike = [each for each in studies if key_of_search(each.definition, model, "") == key]
    known = costs_so_far(alike, model)
    if known is not None and len(known.sizes) >= TOLD_BY:
        return known
    return kept(key_of_search(opened.definition, model, installed("torch") or ""))


def _measured(
    opened: OpenStudy, task: Task, data_dir: Path | None, device: Gpu | CpuCores
) -> SizeCosts | None:
    """Some sizes, alone on the device; None where somebody has that."""
    subject = Subject(definition=opened.definition, task=task, data_dir=data_dir, device=device)
    with (
        exclusive(device.lock_names, give_up=lambda: True) as alone,
        MeasuringProcess(subject) as process,
    ):
        if not alone:
            return None
        process.start(within_s=WAIT_S)
        costs = measured_costs(
            process,
            seconds=MEASURE_S,
            most=MEASURED_SIZES,
            least_for_one_s=WAIT_S,
            building_s=BUILDING_S,
        )
    keep(key_of_search(opened.definition, device.model, installed("torch") or ""), costs)
    return costs


Before = Callable[[Sequence[OpenStudy]], None]
"""What is done with the studies of a launch once they are there, before anybody works at them."""


def run(
    request: LaunchRequest, *, progress: Progress | None = None, stop: StopRequests | None = None
) -> LaunchOutcome:
    """Fill the studies that are asked for:
    begin them or go on with them, with workers on every device.

    Returns when each holds the trials asked for, when the time is over, or when `stop` was asked
    for. Ctrl-C ends it cleanly, too: workers hand back what they run, then it raises.

    Args:
        request: what to launch.
        progress: hears what is to be known, and looks on; by default nobody does.
        stop: to end it from a signal handler or from another thread.

    Raises:
        UsageError: something was asked for that is not there, or does not go together.
        DataError: data that is missing or unfit.
        StorageError: a database that cannot be used, or fails for longer than one waits.
        TunerError: the workers could not be kept alive.
    """
    return run_after(lambda _: None, request, progress=progress, stop=stop)


ON_VALIDATION = (
    "what is minimised is the MQL of the validation split, so that the test split says at the end "
    "how good that is; --mql-split test chooses by the test split itself, in a study of its own"
)


def run_after(
    before: Before,
    request: LaunchRequest,
    *,
    progress: Progress | None = None,
    stop: StopRequests | None = None,
    foretold: Callable[[Sequence[SearchForetold], Notes], None] = lambda _found, _notes: None,
    accept: Callable[[Mapping[str, StudyDefinition]], None] = lambda _asked: None,
) -> LaunchOutcome:
    """The same, with something to be done `before` the work; `foretold` hears what that will take,
    as far as it is known. What the studies are to be is for `accept` to refuse, before any is made.
    """
    stop = stop or StopRequests()
    request, until = checked(request), deadline(request.timeout_s)
    check_foundation(request.foundation)
    notes = Notes(progress or Quiet())
    address = absolute(parse_url(request.storage))
    aim = make_aim(request, environment=os.environ)
    crew = Crew(
        devices=aim.where.devices,
        engine=aim.where.engine,
        task=request.task,
        data_dir=request.data_dir,
        deadline=until,
        hang_limit_s=request.hang_limit_s,
        trusted_code=_own_programs(aim),
    )
    if crew.engine is not None:
        crew.engine.check(address)
    else:
        check_folder()
    with crew.early(address, aim.together) as early:
        plan = make_plan(request, aim)
        accept(plan.definitions)
        dangers = cautions(address, workers=aim.where.workers)
        for line in (aim.where.notice, *plan.of_data, *plan.of_networks, *dangers):
            notes.note(line)
        with in_one_sentence(), closing(open_database(address)) as database:
            launched = make_studies(database, request, plan, aim, notes)
            studies = [each.study for each in launched]
            before(studies)
            if request.devices.print_only:
                printed = crew.in_words(studies)
                return LaunchOutcome(
                    ended=Outcome.PRINTED, studies=(), notes=tuple(notes.lines), printed=printed
                )
            foretold(foretell(studies, request, aim, notes), notes)
            ended = _fill(launched, crew, early, notes, stop)
            _note_changed_budgets(launched, notes)
            if ended is not Outcome.TIMED_OUT:  # else who goes on with it does
                keep_baselines(
                    studies,
                    aim.task,
                    request.data_dir,
                    request.foundation,
                    crew.devices,
                    notes,
                    stop,
                    until,
                )
            return LaunchOutcome(
                ended=ended,
                studies=tuple(_outcome(each) for each in launched),
                notes=tuple(notes.lines),
            )


def _own_programs(aim: Aim) -> list[str]:
    """The hashes of the programs of study files on this host: their workers need not be told."""
    programs = [each.program for each in aim.files.values()]
    return [OwnProgram.here(each).sha256 for each in programs if each is not None]


def make_studies(
    database: Database, request: LaunchRequest, plan: LaunchPlan, aim: Aim, notes: Notes
) -> list[Launched]:
    """The studies of a plan, made or gone on with, and what is to be said of them.

    Raises:
        UsageError: one is there and is another one, or code that nobody trusts here.
    """
    said = Said(
        trials=request.trials,
        searches=request.searches,
        draw=request.draw,
        definition=request.settings.said(),
        policy=request.policy.said(),
    )
    launched = open_studies(
        database,
        plan.definitions,
        said,
        device_model=aim.where.model,
        warm_start=request.warm_start,
    )
    splits = {each.study.definition.mql_split for each in launched}
    if request.settings.mql_split is None and MqlSplit.VAL in splits:
        notes.note(ON_VALIDATION)
    own_code = [require_trust(each.study, trust=request.trust) for each in launched]
    for definition in plan.definitions.values():
        own_code += [*keep_code(database, definition), called_as_built_in(definition)]
    ours = programs_of(plan.definitions.values())
    for each in launched:
        if each.study.definition.program is not None:  # the database may name another folder
            with_code(each.study, trust=request.trust, trusted=ours)
    for line in own_code:
        notes.note(line)
    here = host_facts(database.engine)
    notes.note(clock_in_words(here, "this host"))
    for each in launched:
        others = (facts for _, facts in each.study.roster.hosts())
        for line in newcomer_in_words(each.study.name, here, others):
            notes.note(line)
        for line in each.notes:
            notes.note(line)
        keep_data_file(each.study.optuna, aim.task)
    return launched


def _fill(
    launched: Sequence[Launched], crew: Crew, early: EarlyWorkers, notes: Notes, stop: StopRequests
) -> Outcome:
    studies = [each.study for each in launched]
    if trials_unpaid(studies):
        note_spent(studies, notes)
    paths = WorkerPaths(working_folder(studies[0].database.address))
    for each in studies:
        tidy_up(each, paths)
        each.ledger.return_strays()
        each.ledger.reap()
    if not any(each.ledger.counts().left for each in studies):
        for each in studies:
            notes.note(f"nothing to do: {each.name} holds {_held(each)}")
        return Outcome.GPU_HOURS if trials_unpaid(studies) else Outcome.FILLED
    for device in crew.devices_for(studies)[:1]:
        for each in studies:
            each.bind_device_model(device.model)
    ended = crew.work(studies, notes.progress, stop, early)
    if ended is Outcome.FILLED and trials_unpaid(studies):
        note_spent(studies, notes)
        return Outcome.GPU_HOURS
    return ended


def _held(study: OpenStudy) -> str:
    counts = study.ledger.counts()
    if counts.finished > counts.budget:
        return f"{counts.finished} finished trials, and {counts.budget} were asked for"
    if counts.time_is_up and counts.finished < counts.budget:
        return f"{counts.finished} finished trials, and they have had their time"
    return f"{counts.finished} of {counts.budget} finished trials"


def _note_changed_budgets(launched: Sequence[Launched], notes: Notes) -> None:
    for each in launched:
        now = each.study.ledger.counts().budget
        if now != each.budget:
            notes.note(
                f"the budget of {each.study.name} was changed from {each.budget} to {now} trials "
                "meanwhile, by another launch"
            )


def _outcome(launched: Launched) -> StudyOutcome:
    study = launched.study
    return StudyOutcome(
        name=study.name,
        group=study.membership.group,
        search=study.membership.search,
        counts=study.ledger.counts(),
        results=read_results(study),
        changed=launched.changed,
        notes=launched.notes,
    )
