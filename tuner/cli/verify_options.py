"""The options of `tuner verify`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tuner.cli.options import (
    Cpu,
    DataDir,
    Gpus,
    Json,
    On,
    Placement,
    PrintOnly,
    Storage,
    TaskName,
    Timeout,
    Trust,
    Workers,
)
from tuner.config import MANY
from tuner.spec.confirming import CONFIRMATION_SEEDS


class FrontChosen(StrEnum):
    """`tuner.verdict.expected_front.Choice`, without its imports."""

    FRONT = "front"
    EXPECTED = "expected"
    RECOMMENDED = "recommended"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of `tuner verify`."""

    variant: Annotated[
        str, typer.Option(metavar="NAME[,NAME]", help="Variants whose studies to verify, together.")
    ]
    task: TaskName = "etth"
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Test what each study recommends against its default, on untouched seeds.",
        ),
    ] = False
    ablate: Annotated[
        bool,
        typer.Option(
            "--ablate",
            help="Run what each study recommends with one value at a time set back to the default.",
        ),
    ] = False
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            metavar="N",
            help="Configurations along each front, its knee included (5); of each round (6).",
        ),
    ] = None
    choose: Annotated[
        FrontChosen | None,
        typer.Option(
            "--choose",
            help="What may be recommended, in rounds (where 12 configurations converged); from the "
            "front as the search saw it; or from what all trials together expect of each.",
        ),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MANY,
            metavar="N",
            help="Fresh seeds for each configuration (10; of each round 6; with --confirm "
            f"{CONFIRMATION_SEEDS}; with --ablate 10).",
        ),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --confirm: also what has the quality of this variant's default, or "
            "group:NAME's (the first variant's, where several are named).",
        ),
    ] = None
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="1%",
            help="With --confirm: as good is an MQL at most so much above the default's.",
        ),
    ] = None
    gpus: Gpus = None
    cpu: Cpu = False
    workers: Workers = None
    on: On = None
    placement: Placement = None
    print_only: PrintOnly = False
    stop_early: Annotated[
        bool,
        typer.Option(
            "--stop-early",
            help="End at a planned look (60 or 80 % of the seeds) when all is clear.",
        ),
    ] = False
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Studies, or group:NAME (default: all searches of <task>-<variant>).",
        ),
    ] = None
    data_dir: DataDir = None
    timeout: Timeout = None
    trust: Trust = False
    storage: Storage = None
    json: Json = False
