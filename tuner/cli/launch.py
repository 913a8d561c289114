"""`tuner launch`: from a variant's name to a study with its front."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.command import takes
from tuner.cli.options import (
    Cpu,
    DataDir,
    Gpus,
    Json,
    On,
    Placement,
    PrintOnly,
    Storage,
    Study,
    TaskName,
    Timeout,
    Trust,
    Workers,
    as_typed,
    data_folder,
    duration_s,
    opened_database,
    storage_url,
)
from tuner.cli.output import print_json
from tuner.cli.search_options import (
    Accumulate,
    BackendName,
    CheckpointActivations,
    CheckpointEvery,
    CompileModeName,
    HangLimit,
    MaxEpochs,
    MaxGpuHours,
    MqlSplitName,
    NoEstimate,
    PrecisionName,
    Prune,
    Reruns,
    Sampler,
    SamplerSeed,
    TargetValLoss,
    TimeObjectiveName,
    Until,
    ValidateEvery,
)
from tuner.config import MANY, MOST_SEARCHES

if TYPE_CHECKING:
    from tuner.launch import LaunchOutcome, LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options of `tuner launch`."""

    variant: Annotated[
        str, typer.Option(metavar="NAME[,NAME]", help="Variants or study files (.toml) to retune.")
    ]
    gpus: Gpus = None
    cpu: Cpu = False
    workers: Workers = None
    on: On = None
    placement: Placement = None
    print_only: PrintOnly = False
    task: TaskName = "etth"
    data_dir: DataDir = None
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            metavar="N",
            help="Until each study holds this many finished trials (a new one: 50).",
        ),
    ] = None
    search_time: Annotated[
        str | None,
        typer.Option(
            metavar="5m|none",
            help="No trial begins once those of its search have had their devices for so long.",
        ),
    ] = None
    until: Until = None
    max_gpu_hours: MaxGpuHours = None
    no_estimate: NoEstimate = False
    searches: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_SEARCHES,
            metavar="S",
            help="Independent searches of each variant, each a study with all the trials (those "
            "that are there, or 1).",
        ),
    ] = None
    timeout: Timeout = None
    max_epochs: MaxEpochs = None
    storage: Storage = None
    study: Study = None
    time_objective: TimeObjectiveName = None
    target_val_loss: TargetValLoss = None
    mql_split: MqlSplitName = None
    max_time: Annotated[
        str | None,
        typer.Option(metavar="S|none", help="Configurations must take at most S seconds."),
    ] = None
    max_mql: Annotated[
        str | None, typer.Option(metavar="Q|none", help="Configurations must have at most Q.")
    ] = None
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="8GB|none", help="Configurations must need at most this (GPU: allocated)."
        ),
    ] = None
    sampler: Sampler = None
    sampler_seed: SamplerSeed = None
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY[,STUDY]", help="Studies, or exported ones, whose fronts go first."
        ),
    ] = None
    prune: Prune = None
    backend: BackendName = None
    precision: PrecisionName = None
    accumulate: Accumulate = None
    checkpoint_activations: CheckpointActivations = None
    compile_mode: CompileModeName = None
    validate_every: ValidateEvery = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            metavar="N",
            help="Train each configuration with so many seeds; medians count (1).",
        ),
    ] = None
    reruns: Reruns = None
    checkpoint_every: CheckpointEvery = None
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="1%",
            help="As good as the default is an MQL at most so much above its own "
            "(a new study: 1%).",
        ),
    ] = None
    hang_limit: HangLimit = None
    trust: Trust = False
    json: Json = False


@takes(LaunchOptions)
def launch(options: LaunchOptions) -> int:
    """Retune variants: one study each, or one for each search, workers on every device,
    until every study holds --trials finished trials.

    Running the same command again resumes; when there is nothing left to do it says so. Later
    launches keep earlier settings unless you change them. Brackets show the default of a new study.
    'none' lifts a limit.
    """
    request = _request(options)
    from tuner.cli.foreground import EXIT_CODES, Foreground
    from tuner.launch import run
    from tuner.report.terminal.live import live_view

    foreground = Foreground(live_view)
    outcome = run(request, progress=foreground, stop=foreground.stop)
    if outcome.printed:
        typer.echo(outcome.printed, nl=False)
        return 0
    _report(outcome, options, request.storage)
    return EXIT_CODES.get(outcome.ended, 0)


def _request(options: LaunchOptions) -> LaunchRequest:
    from tuner.cli.asked import devices_of, policy_of, settings_of
    from tuner.launch import LaunchRequest

    policy = policy_of(
        options,
        max_time=options.max_time,
        max_mql=options.max_mql,
        max_memory=options.max_memory,
        margin=options.margin,
        search_time=options.search_time,
        until=options.until,
        max_gpu_hours=options.max_gpu_hours,
    )
    settings = settings_of(options, seeds=options.seeds)
    return LaunchRequest(
        variants=options.variant,
        task=options.task,
        study=options.study,
        data_dir=data_folder(options.data_dir),
        devices=devices_of(options),
        trials=options.trials,
        searches=options.searches,
        timeout_s=duration_s(options.timeout, "--timeout"),
        hang_limit_s=duration_s(options.hang_limit, "--hang-limit"),
        storage=storage_url(options.storage),
        settings=settings,
        policy=policy,
        warm_start=options.warm_start,
        trust=options.trust,
        estimate=not options.no_estimate,
    )


def _report(outcome: LaunchOutcome, options: LaunchOptions, storage: str) -> None:
    from tuner.launch import Outcome
    from tuner.launch.outcome import refuse_nothing_but_failures
    from tuner.report.study_status import groups_of, status_of
    from tuner.report.terminal.tables import print_summary
    from tuner.study.open import open_study

    with opened_database(storage) as database:
        opened = [open_study(database, each.name) for each in outcome.studies]
        if not options.json:
            print_summary(opened, as_typed(options.storage), ended=outcome.ended.value)
        if outcome.ended is Outcome.FILLED:
            refuse_nothing_but_failures(outcome)
        if options.json:
            studies = [
                status_of(study) | {"changed": each.changed}
                for study, each in zip(opened, outcome.studies, strict=True)
            ]
            found = {"studies": studies, "groups": groups_of(opened)}
            print_json({"outcome": outcome.ended.value, **found})
