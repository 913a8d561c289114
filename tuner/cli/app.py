"""All commands in one place."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tuner.cli.help import NAMES, Command
from tuner.cli.sigterm import WORDS
from tuner.errors import InterruptionError, exit_code_of
from tuner.version import __version__

GROUPS = {
    "Search": {
        "retune": (
            "retune:retune",
            "start.md",
            "Search, verify, confirm and compare a variant, in one command.",
        ),
        "launch": (
            "launch:launch",
            "start.md",
            "Retune variants: a study each, workers on every device.",
        ),
        "worker": ("worker:worker", "several-machines.md", "Run trials of a study on one device."),
        "estimate": (
            "estimate:estimate",
            "before-you-spend.md",
            "Say what a search will cost, before it is begun.",
        ),
        "warm": (
            "warm:warm",
            "before-you-spend.md",
            "Compile what searches will need, also without a GPU.",
        ),
    },
    "Look": {
        "status": (
            "status:status",
            "watch.md",
            "Show studies: trials, front, hypervolume, workers.",
        ),
        "trial": ("status:trial", "watch.md", "Show everything about one trial."),
        "dashboard": ("status:dashboard", "watch.md", "Show the studies in a browser, read-only."),
        "plot": ("plot:plot", "watch.md", "Draw a figure of studies into a file."),
    },
    "Decide": {
        "verify": (
            "verify:verify",
            "read-a-verdict.md",
            "Run what may be the answer again on fresh seeds.",
        ),
        "compare": (
            "compare:compare",
            "read-a-verdict.md",
            "Compare variants, with intervals and tests.",
        ),
        "gate": ("gate:gate", "watch.md", "Say whether a changed model is still as good."),
        "confirm": (
            "confirm:confirm",
            "from-optuna.md",
            "Confirm a finished study of plain Optuna, or a CSV.",
        ),
        "explain": (
            "compare:explain",
            "read-a-verdict.md",
            "Say which hyperparameters matter, and more.",
        ),
    },
    "Use": {
        "forecast": ("forecast:forecast", "start.md", "Forecast a file, with a model and a page."),
        "best": ("best:best", "use-the-result.md", "Print a configuration of a study."),
        "train": ("train:train", "use-the-result.md", "Train a configuration, and save the model."),
        "predict": (
            "predict:predict",
            "use-the-result.md",
            "Forecast with a trained model; draw a fan chart.",
        ),
    },
    "Keep": {
        "init": ("init:app", "own-data.md", "Write a file to begin with."),
        "data": ("data:app", "own-data.md", "Look at data; fetch that of the reference job."),
        "study": ("study:app", "use-the-result.md", "List, rename, delete, export studies."),
        "db": (
            "db:app",
            "several-machines.md",
            "Make the database ready, look it over, back it up.",
        ),
    },
    "Measure": {
        "doctor": (
            "doctor:doctor",
            "start.md",
            "Check this machine: packages, GPUs, data, database.",
        ),
        "variants": (
            "variants:variants",
            "own-model.md",
            "List the built-in variants, or try one.",
        ),
        "profile": (
            "profile:profile",
            "before-you-spend.md",
            "Measure where a training's time goes, and try what helps.",
        ),
        "bench": (
            "bench:bench",
            "before-you-spend.md",
            "Measure our backends, darts and neuralforecast.",
        ),
    },
}
"""The commands, by what one does with them: where each is, the page of the docs that says more, and
the line about it in the list of all; its own help says more. A module is imported for its own
command alone: a list of all of them needs none."""
COMMANDS = {name: each for group in GROUPS.values() for name, each in group.items()}


class _Made(Mapping[str, Any]):
    """The commands as the parser has them, each made when it is asked for."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _made(name)


@functools.cache
def _made(name: str) -> Any:
    where, page, line = COMMANDS[name]
    module, _, attribute = where.partition(":")
    found = getattr(importlib.import_module(f"tuner.cli.{module}"), attribute)
    alone = typer.Typer(add_completion=False, **_SETTINGS)
    if not isinstance(found, typer.Typer):
        alone.command(name, short_help=line, cls=Command)(found)
        return _shown(typer.main.get_command(alone), name, page)
    for each in found.registered_commands:
        each.cls, each.context_settings = Command, NAMES
    alone.add_typer(found, name=name, context_settings=NAMES)
    group = typer.main.get_command(alone).commands[name]  # type: ignore[attr-defined]
    for below, made in group.commands.items():
        _shown(made, f"{name} {below}", page)
    return group


def _shown(made: Any, name: str, page: str) -> Any:
    made.name_in_full, made.page = f"tuner {name}", page
    return made


class _Commands(TyperGroup):
    """All commands. typer answers Ctrl-C with an exit code and no word;
    here it is a failure like any other.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.commands = _Made()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of all, of which none is made."""
        del ctx
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, line) for name, (*_, line) in commands.items()])

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


_SETTINGS: dict[str, Any] = {
    "context_settings": NAMES,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
app = typer.Typer(
    name="tuner",
    cls=_Commands,
    help="Retune forecasting models: each architecture gets its own study, over time to "
    "convergence and test MQL.",
    invoke_without_command=True,
    **_SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tuner {__version__}")
        raise typer.Exit


GREETING = """\
tuner gives each architecture a search of its own, and says which one is better.

  tuner doctor                                             is this machine ready?
  tuner retune --variant rmsnorm --against original        the whole way to an answer
  tuner dashboard                                          watch it in a browser
  tuner --help                                             all commands"""


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version
    if ctx.invoked_subcommand is None:
        typer.echo(GREETING)


@functools.cache
def whole() -> Any:
    """The parser of all commands: made once in a process."""
    return typer.main.get_command(app)
