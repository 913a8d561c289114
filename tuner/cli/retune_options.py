"""The options of `tuner retune`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.command import But
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
    Storage,
    TaskName,
    Timeout,
    Trust,
    Workers,
)
from tuner.cli.replace import Force
from tuner.config import MANY
from tuner.spec.policy import SearchPolicy
from tuner.spec.retune import Registered
from tuner.spec.study_settings import StudySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneOptions:
    """The options of `tuner retune`."""

    variant: Annotated[
        str, typer.Option(metavar="NAME", help="The variant, or study file (.toml), to retune.")
    ]
    gpus: Gpus = None
    cpu: Cpu = False
    workers: Workers = None
    on: On = None
    placement: Placement = None
    task: TaskName = "etth"
    data_dir: DataDir = None
    plan: Registered = field(default_factory=Registered)
    no_estimate: NoEstimate = False
    top: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, metavar="N", help="Configurations of each round of re-evaluation (6)."
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
    policy: Annotated[
        SearchPolicy, But(("max_time_s", "max_mql", "max_memory_bytes", "search_s", "margin"))
    ] = field(default_factory=SearchPolicy)
    """The margin is registered, and the time of a search a share of the budget."""
    draw: Draw = None
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY[,STUDY]",
            help="Other studies, or exported ones, whose fronts all searches try first.",
        ),
    ] = None
    settings: Annotated[StudySettings, But(("seeds",))] = field(default_factory=StudySettings)
    hang_limit: HangLimit = None
    trust: Trust = False
    force: Force = False
    storage: Storage = None
    json: Json = False
