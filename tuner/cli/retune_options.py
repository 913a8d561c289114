"""The options of `tuner retune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import (
    Cpu,
    DataDir,
    Gpus,
    Json,
    On,
    Placement,
    Storage,
    TaskName,
    Timeout,
    Trust,
    Workers,
)
from tuner.cli.replace import Force
from tuner.cli.search_options import (
    Accumulate,
    BackendName,
    CheckpointActivations,
    CheckpointEvery,
    CompileModeName,
    Draw,
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
    ValidateEvery,
)
from tuner.config import MANY, MOST_SEARCHES
from tuner.spec.confirming import CONFIRMATION_SEEDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneOptions:
    """The options of `tuner retune`."""

    variant: Annotated[
        str, typer.Option(metavar="NAME", help="The variant, or study file (.toml), to retune.")
    ]
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The variant to hold it against, which is retuned as well; without it, its own "
            "default alone counts.",
        ),
    ] = None
    gpus: Gpus = None
    cpu: Cpu = False
    workers: Workers = None
    on: On = None
    placement: Placement = None
    task: TaskName = "etth"
    data_dir: DataDir = None
    searches: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_SEARCHES,
            metavar="S",
            help="Independent searches of each variant (5: a claim between two variants takes so "
            "many).",
        ),
    ] = None
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            metavar="N",
            help="Finished trials of each search (320; with --budget as many as it buys).",
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="20m",
            help="Device time for all searches and their re-evaluation together; the confirmation "
            "comes on top.",
        ),
    ] = None
    max_gpu_hours: MaxGpuHours = None
    no_estimate: NoEstimate = False
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="1%",
            help="As good as the default is an MQL at most so much above its own (1%).",
        ),
    ] = None
    top: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, metavar="N", help="Configurations of each round of re-evaluation (6)."
        ),
    ] = None
    confirm_seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            metavar="N",
            help=f"Fresh seeds of the confirmation ({CONFIRMATION_SEEDS}).",
        ),
    ] = None
    ablate: Annotated[
        bool,
        typer.Option(
            "--ablate",
            help="At the end, run what each search recommends with one value at a time set back to "
            "the default: which of them made the gain?",
        ),
    ] = False
    timeout: Timeout = None
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The report (retune-<study>.html beside the SQLite file, else in storage).",
        ),
    ] = None
    max_epochs: MaxEpochs = None
    time_objective: TimeObjectiveName = None
    target_val_loss: TargetValLoss = None
    mql_split: MqlSplitName = None
    sampler: Sampler = None
    sampler_seed: SamplerSeed = None
    draw: Draw = None
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY[,STUDY]",
            help="Other studies, or exported ones, whose fronts all searches try first.",
        ),
    ] = None
    prune: Prune = None
    backend: BackendName = None
    precision: PrecisionName = None
    accumulate: Accumulate = None
    checkpoint_activations: CheckpointActivations = None
    compile_mode: CompileModeName = None
    validate_every: ValidateEvery = None
    reruns: Reruns = None
    checkpoint_every: CheckpointEvery = None
    hang_limit: HangLimit = None
    trust: Trust = False
    force: Force = False
    storage: Storage = None
    json: Json = False
