"""All commands in one place."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tuner.cli import (
    bench,
    best,
    compare,
    data,
    db,
    doctor,
    estimate,
    init,
    launch,
    plot,
    predict,
    profile,
    retune,
    status,
    study,
    train,
    variants,
    verify,
    warm,
    worker,
)
from tuner.cli.sigterm import WORDS
from tuner.errors import InterruptionError, exit_code_of
from tuner.version import __version__


class _Commands(TyperGroup):
    """All commands. typer answers Ctrl-C with an exit code and no word;
    here it is a failure like any other.
    """

    def make_context(self, *given: Any, **named: Any) -> Any:
        with (
            _told()
        ):  # the first look at the command line takes a while: typer imports pydantic for it
            return super().make_context(*given, **named)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptionError(WORDS[exit_code_of(error)], error) from None


app = typer.Typer(
    name="tuner",
    cls=_Commands,
    help="Retune forecasting models: each architecture gets its own study, over time to "
    "convergence and test MQL.",
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
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version


_COMMANDS: dict[str, tuple[Callable[..., int], str]] = {
    "launch": (launch.launch, "Retune variants: a study each, workers on every device."),
    "worker": (worker.worker, "Run trials of a study on one device."),
    "status": (status.status, "Show studies: trials, front, hypervolume, workers."),
    "trial": (status.trial, "Show everything about one trial."),
    "best": (best.best, "Print a configuration of a study."),
    "train": (train.train, "Train a configuration, and save the model."),
    "predict": (predict.predict, "Forecast with a trained model; draw a fan chart."),
    "plot": (plot.plot, "Draw a figure of studies into a file."),
    "verify": (verify.verify, "Run what may be the answer again on fresh seeds."),
    "compare": (compare.compare, "Compare variants, with intervals and tests."),
    "retune": (retune.retune, "Search, verify, confirm and compare a variant, in one command."),
    "estimate": (estimate.estimate, "Say what a search will cost, before it is begun."),
    "explain": (compare.explain, "Say which hyperparameters matter, and more."),
    "dashboard": (status.dashboard, "Show the studies in a browser, read-only."),
    "variants": (variants.variants, "List the built-in variants, or try one."),
    "profile": (profile.profile, "Measure where a training's time goes, and try what helps."),
    "bench": (bench.bench, "Measure our backends, darts and neuralforecast."),
    "warm": (warm.warm, "Compile what searches will need, also without a GPU."),
    "doctor": (doctor.doctor, "Check this machine: packages, GPUs, data, database."),
}
"""Each command, and the line about it in the list of all; its own help says more."""

for _name, (_command, _line) in _COMMANDS.items():
    app.command(_name, short_help=_line)(_command)
app.add_typer(init.app, name="init")
app.add_typer(data.app, name="data")
app.add_typer(db.app, name="db")
app.add_typer(study.app, name="study")


@functools.cache
def whole() -> Any:
    """All commands as the parser has them: made once in a process, which takes a while."""
    return typer.main.get_command(app)
