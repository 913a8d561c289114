"""The options of `tuner launch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from tuner.cli.options import (
    Cpu,
    DataDir,
    Draw,
    Gpus,
    HangLimit,
    Json,
    NoEstimate,
    On,
    Placement,
    PrintOnly,
    Storage,
    Study,
    TaskName,
    Timeout,
    Trust,
    Workers,
)
from tuner.config import MANY, MOST_SEARCHES
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_settings import StudySettings


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
    storage: Storage = None
    study: Study = None
    policy: SearchPolicy = field(default_factory=SearchPolicy)
    draw: Draw = None
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY[,STUDY]", help="Studies, or exported ones, whose fronts go first."
        ),
    ] = None
    settings: StudySettings = field(default_factory=StudySettings)
    hang_limit: HangLimit = None
    trust: Trust = False
    json: Json = False
