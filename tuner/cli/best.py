"""`tuner best`: the configuration that a study recommends, in the form that training code takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from tuner.cli.command import takes
from tuner.cli.options import Json, Storage, Study, TaskName, note
from tuner.cli.picking import (
    Against,
    Margin,
    MaxMql,
    MaxTime,
    Pick,
    PickName,
    TrialNumber,
    ValuesName,
    picked,
)
from tuner.display.text import shown_lines
from tuner.errors import UsageError


class Format(StrEnum):
    """How the configuration is written."""

    JSON = "json"
    TOML = "toml"
    PYTHON = "python"
    NEURALFORECAST = "neuralforecast"
    DARTS = "darts"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOptions:
    """The options of `tuner best`."""

    variant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Variant whose searches are picked from (or --study)."),
    ] = None
    pick: PickName = Pick.SAME_QUALITY
    margin: Margin = None
    against: Against = None
    values: ValuesName = None
    max_time: MaxTime = None
    max_mql: MaxMql = None
    trial: TrialNumber = None
    output_format: Annotated[
        Format | None,
        typer.Option(
            "--format", help="toml (default), json; scripts: python, neuralforecast, darts."
        ),
    ] = None
    task: TaskName = "etth"
    study: Study = None
    storage: Storage = None
    json: Json = False


@takes(BestOptions)
def best(options: BestOptions) -> int:
    """Print the configuration that a study recommends, with where it comes from.

    Where nothing faster is surely enough as good as the default, that is the default, and a line on
    stderr says so.
    """
    from tuner.export import render

    form = options.output_format
    if options.json and form not in (None, Format.JSON):
        raise UsageError(f"--json and --format {form} exclude each other; choose one")
    found = picked(options, task=options.task)
    chosen = form or (Format.JSON if options.json else Format.TOML)
    typer.echo(shown_lines(render(found, chosen.value)))
    if found.loses:
        note(found.loses)
    for line in found.notes:
        note(line)
    return 0
