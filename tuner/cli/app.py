"""All commands in one place."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import (
    bench,
    best,
    compare,
    dashboard,
    data,
    db,
    doctor,
    explain,
    launch,
    plot,
    status,
    study,
    train,
    trial,
    variants,
    verify,
    worker,
)
from tuner.version import __version__

app = typer.Typer(
    name="tuner",
    help="Retune forecasting models: each architecture gets its own study, over time to convergence and test MQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tuner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version


app.command("launch")(launch.launch)
app.command("worker")(worker.worker)
app.command("status")(status.status)
app.command("trial")(trial.trial)
app.command("best")(best.best)
app.command("train")(train.train)
app.command("plot")(plot.plot)
app.command("verify")(verify.verify)
app.command("compare")(compare.compare)
app.command("explain")(explain.explain)
app.command("dashboard")(dashboard.dashboard)
app.command("variants")(variants.variants)
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)
app.add_typer(data.app, name="data")
app.add_typer(db.app, name="db")
app.add_typer(study.app, name="study")
