"""`tuner data`: a look at data before it is searched on, and fetching the reference job's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import data_check
from tuner.cli.output import say
from tuner.errors import unknown_name

app = typer.Typer(help="Look at data; fetch that of the reference job.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Look at data; fetch that of the reference job."""


@app.command()
def fetch(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Which data: etth.")],
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to put it (default: the user cache).")
    ] = None,
) -> int:
    """Download a task's data once and check it."""
    from tuner.data.etth import fetch_etth

    if task != "etth":
        raise unknown_name("downloadable data", task, ["etth"])
    say(f"etth is in {fetch_etth(to)}")
    return 0


app.command(short_help="Say what a file's or a task's data is.")(data_check.check)
