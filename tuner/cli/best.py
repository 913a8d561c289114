"""`tuner best`: a configuration from the front, in the form that training code takes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tuner.cli.options import Json, Storage, Study, TaskName, storage_url
from tuner.display.text import shown_lines
from tuner.errors import UsageError


class Pick(StrEnum):
    """Which point of the front."""

    MQL = "mql"
    TIME = "time"
    KNEE = "knee"


class Format(StrEnum):
    """How the configuration is written."""

    JSON = "json"
    TOML = "toml"
    PYTHON = "python"
    NEURALFORECAST = "neuralforecast"
    DARTS = "darts"


def best(
    variant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Variant whose searches are picked from (or --study)."),
    ] = None,
    pick: Annotated[
        Pick, typer.Option(help="Lowest MQL, lowest time, or the knee of the front.")
    ] = Pick.KNEE,
    max_time: Annotated[
        float | None, typer.Option(metavar="S", help="At most this many seconds.")
    ] = None,
    max_mql: Annotated[
        float | None, typer.Option(metavar="Q", help="At most this test MQL.")
    ] = None,
    trial: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="This trial, on the front or not.")
    ] = None,
    output_format: Annotated[
        Format | None,
        typer.Option(
            "--format", help="toml (default), json; scripts: python, neuralforecast, darts."
        ),
    ] = None,
    task: TaskName = "etth",
    study: Study = None,
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Print a configuration of a study, with where it comes from."""
    from tuner.export import is_archive, load_best, render

    if json and output_format not in (None, Format.JSON):
        raise UsageError(f"--json and --format {output_format} exclude each other; choose one")

    found = load_best(
        variant,
        pick=pick.value,
        task=task,
        study=study,
        storage=storage if storage and is_archive(storage) else storage_url(storage),
        max_time=max_time,
        max_mql=max_mql,
        trial=trial,
    )
    chosen = output_format or (Format.JSON if json else Format.TOML)
    typer.echo(shown_lines(render(found, chosen.value)))
    return 0
