"""`tuner estimate`: what a search or a retune will cost, before it is begun."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from tuner.cli.command import Only, option, switch, takes
from tuner.cli.device import OneDeviceOptions, alone_on, chosen_device
from tuner.cli.options import Json, Storage, TaskName, data_folder, is_named, storage_address
from tuner.cli.output import note, print_json
from tuner.config import MANY, MOST_SEARCHES
from tuner.settings import duration_s
from tuner.spec.policy import SearchPolicy, StudySettings
from tuner.version import installed

if TYPE_CHECKING:
    from tuner.data.task import Task
    from tuner.devices import CpuCores, Gpu
    from tuner.estimate.cost_model import SizeCosts
    from tuner.estimate.foretold import Ended, SearchForetold
    from tuner.estimate.measuring_process import MeasuringProcess
    from tuner.estimate.whole_estimate import Estimate, VariantEstimate
    from tuner.spec.definition import StudyDefinition
    from tuner.storage.database import Database


# What `tuner estimate` need not ask a device: sizes measured before, trials that have ended.


def known_or_measured(
    process: MeasuringProcess, seconds: float, *, again: bool
) -> tuple[SizeCosts, tuple[str, ...]]:
    """What the sizes cost, as it was measured before, all of them, or measured now and kept; and
    why these figures are to be doubted, which is said, too.
    """
    from tuner.devices import Watch
    from tuner.estimate.cost_model import keep, kept, key_of_search, to_measure
    from tuner.estimate.measuring_process import EVERY_SIZE, measured_costs

    definition = process.subject.definition
    key = key_of_search(definition, process.subject.device.model, installed("torch") or "")
    wanted = to_measure(definition.space, definition.defaults, most=EVERY_SIZE)
    before = None if again else kept(key)
    if before is not None and len(before.sizes) >= len(wanted):
        note("these sizes were measured here before; --again measures them anew")
        return before, ()
    known = () if before is None else before.sizes
    sizes = f"{len(wanted)} sizes of {definition.variant}"
    begun = f", {len(known)} of which were measured here before" if known else ""
    note(f"measuring {sizes}{begun}; after {seconds:.0f} s no further one is begun")
    watch = Watch(process.subject.device)
    found = measured_costs(process, seconds=seconds, before=known)
    doubts = []
    if why := watch.finish().why:
        doubts.append(f"these figures are not to be trusted: {why}")
    if known and not any(each in known for each in found.sizes):
        default = found.sizes[0]
        took = "" if default.epoch_s is None else f" but {default.epoch_s:.3g} s an epoch"
        doubts.append(
            f"the default does not take what it took then{took}: {len(found.sizes)} sizes were "
            "measured anew"
        )
        if before is not None and len(known) > len(found.sizes):
            doubts[-1] += f"; those of then stay, {len(known)}, till --again"
            found = before
    for doubt in doubts:
        note(doubt)
    if found is not before:
        keep(key, found)
    return found, tuple(doubts)


def ended_before(
    storage: str | None, definition: StudyDefinition, searches: int
) -> list[list[Ended]]:
    """The trials that each of its `searches` has in the database that was named, where they are
    searches of the same.
    """
    from tuner.errors import EmptyDatabaseError
    from tuner.storage.database import open_database
    from tuner.study.snapshot import members_of, memberships

    nothing: list[list[Ended]] = [[] for _ in range(searches)]
    if not is_named(storage):
        return nothing
    address = storage_address(storage)
    if storage is None and address.is_sqlite and not address.sqlite_path.exists():
        return nothing  # that of the environment is made by the first launch
    group = f"{definition.task_name}-{definition.variant}"
    try:
        database = open_database(address, create=False)
    except EmptyDatabaseError:
        return nothing
    with closing(database):
        there = members_of(memberships(database), group)
        return [_ended_of(database, there.get(n), definition) for n in range(1, searches + 1)]


def _ended_of(database: Database, study: str | None, definition: StudyDefinition) -> list[Ended]:
    from tuner.estimate.foretold import ended_trials
    from tuner.study.open import open_study

    if study is None:
        return []
    opened = open_study(database, study)
    if opened.definition.comparable() != definition.comparable():
        note(f"study {study} has other settings than were named here: its trials do not count")
        return []
    return ended_trials(opened)


TRIALS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions(OneDeviceOptions):
    """The options of `tuner estimate`."""

    variant: str = option("NAME", "The variant, or study file (.toml), to estimate.", default=...)
    task: TaskName = "etth"
    trials: int | None = option(
        "N", "Trials of the search (50; of a retune's 320 or 200).", min=1, max=MANY
    )
    gpus: int = option("N", "Devices that share the work.", default=1, min=1, max=MANY)
    retune: bool = switch("Estimate 'tuner retune', not 'tuner launch'.")
    against: str | None = option("NAME", "With --retune: the reference, which is retuned too.")
    searches: int | None = option(
        "S", "Searches of each variant (1; retune: 5).", min=1, max=MOST_SEARCHES
    )
    budget: str | None = option(
        "20m", "With --retune: device time for all searches and re-evaluation."
    )
    measure: str = option("60s", "No size is begun to be measured after so long.", default="60s")
    again: bool = switch("Measure also what was measured before.")
    policy: Annotated[SearchPolicy, Only(("sampler", "prune", "price_per_gpu_hour"))] = field(
        default_factory=SearchPolicy
    )
    settings: Annotated[StudySettings, Only(("max_epochs", "backend", "precision"))] = field(
        default_factory=StudySettings
    )
    storage: Storage = None
    json: Json = False


@takes(EstimateOptions)
def estimate(options: EstimateOptions) -> int:
    """Estimate what a study, or a retune, will take: seconds an epoch, a trial and a search, device
    hours, money, memory, and the largest batch.

    Some batches of each size are measured, or of some sizes of a large space. How many epochs a
    trial takes is known from recorded searches, and from the trials that the study has by now.
    """
    found = _estimate(options)
    if options.json:
        print_json(found.as_dict())
        return 0
    from tuner.report.terminal.estimate_lines import print_estimate

    print_estimate(found)
    return 0


def _estimate(options: EstimateOptions) -> Estimate:
    from tuner.errors import UsageError
    from tuner.estimate.whole_estimate import Estimate, stages_of
    from tuner.spec.policy import SEARCHES

    for flag, given in (("--against", options.against), ("--budget", options.budget)):
        if given is not None and not options.retune:
            raise UsageError(f"{flag} belongs to a retune: add --retune, or leave it out")
    seconds = duration_s(options.measure, "--measure") or 0.0
    budget_s = duration_s(options.budget, "--budget")
    ends = _ends(options, budget_s)
    names = [options.variant, *([options.against] if options.against else [])]
    definitions, task = _definitions(options, names)
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    searches = options.searches or (SEARCHES if options.retune else 1)
    variants = [
        _of_variant(options, definition, task, device, seconds / len(definitions), ends, searches)
        for definition in definitions
    ]
    each = [search for one in variants for search in one.searches]
    stages = None
    if options.retune:
        stages = stages_of(each, sampler=options.policy.sampler, budget_s=budget_s)
    return Estimate(
        device_model=device.model,
        devices=options.gpus,
        variants=tuple(variants),
        searches=searches,
        stages=stages,
        price_per_hour=options.policy.price_per_gpu_hour,
    )


def _definitions(
    options: EstimateOptions, names: Sequence[str]
) -> tuple[list[StudyDefinition], Task]:
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.errors import UsageError
    from tuner.launch.plan import definition_of, study_files

    files = [file for name in names for file in study_files(name).values()]
    if len(files) != len(names):
        raise UsageError(f"--variant {options.variant} names several; estimate them one by one")
    task = load_task(options.task)
    if any(file.program is not None for file in files):
        raise UsageError("no program is measured in parts; tuner variants --check runs one shortly")
    digest = prepare(task, data_dir=data_folder(options.data_dir)).data_hash
    return [definition_of(file, task, digest, options.settings) for file in files], task


def _of_variant(
    options: EstimateOptions,
    definition: StudyDefinition,
    task: Task,
    device: Gpu | CpuCores,
    seconds: float,
    ends: tuple[int, float | None],
    searches: int,
) -> VariantEstimate:
    from tuner.devices import Gpu
    from tuner.errors import TunerError
    from tuner.estimate.cost_model import size_of
    from tuner.estimate.foretold import search_foretold
    from tuner.estimate.measuring_process import MeasuringProcess, Subject, largest_batches
    from tuner.estimate.whole_estimate import VariantEstimate, rows_of

    before = ended_before(options.storage, definition, searches)  # first: measuring takes a minute
    subject = Subject(
        definition=definition, task=task, data_dir=data_folder(options.data_dir), device=device
    )
    with alone_on(device), MeasuringProcess(subject) as process:
        costs, doubts = known_or_measured(process, seconds, again=options.again)
        # On a CPU it would be as large as what others of the host leave just now.
        largest = largest_batches(process, costs.windows) if isinstance(device, Gpu) else {}
    trials, within_s = ends
    foretold: list[SearchForetold] = []
    for ended in before:
        search = search_foretold(
            definition,
            costs,
            trials=trials,
            ended=ended,
            sampler=options.policy.sampler,
            prune=options.policy.prune,
            within_s=within_s,
        )
        if search is None:
            raise TunerError("the default's epochs could not be measured; run again with --again")
        foretold.append(search)
    return VariantEstimate(
        variant=definition.variant,
        default=size_of(definition.defaults.as_dict()),
        costs=costs,
        sizes=rows_of(definition, costs),
        searches=tuple(foretold),
        doubts=doubts,
        largest=largest,
    )


def _ends(options: EstimateOptions, budget_s: float | None) -> tuple[int, float | None]:
    """After how many trials a search ends, and after how many seconds on devices."""
    from tuner.launch.retune_agreement import ends_of_search
    from tuner.search.methods import method_of
    from tuner.spec.policy import SEARCHES

    if not options.retune:
        return options.trials or TRIALS, None
    variants = 1 if options.against is None else 2
    return ends_of_search(
        trials=options.trials,
        budget_s=budget_s,
        searches=(options.searches or SEARCHES) * variants,
        repeats=method_of(options.policy.sampler).repeats,
    )
